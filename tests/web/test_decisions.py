"""Deciding on a failover: it binds to what was shown and happens once, by those who may, here and there."""

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from reliability.domain.failover import State
from reliability.domain.faults import Action
from reliability.models import Decision, Drill, Failover, Incident, Node
from reliability.services import decisions, failovers
from tests.web import rows


@pytest.fixture
def request_(db: None) -> Failover:
    """A request as the service itself makes it: a node is lost, one standby passed its checks."""
    first, second = rows.node("n1"), rows.node("n2", health="unreachable", seen_s=60)
    standby = rows.node("s1", role="standby")
    for kind in ("bandwidth", "sdc"):
        rows.validation(standby, kind)
    job = rows.job("gpt-small", [first, second])
    rows.snapshot(job, 1220)
    cause = rows.incident(job, second)
    made = failovers.propose(cause)
    assert made is not None
    return made


def post(client: Any, name: str, found: Failover, digest: str, note: str = "") -> Any:
    return client.post(reverse(name, args=[found.pk]), {"digest": digest, "note": note})


def test_the_card_shows_what_would_happen_and_carries_its_digest(client_of: Any, request_: Failover) -> None:
    text = client_of("approver").get(f"/failovers/{request_.pk}/").content.decode()
    assert "Replace n2 by s1 in gpt-small?" in text
    assert f'name="digest" value="{request_.digest}"' in text
    assert "Restore <b>step 1\u202f220</b>" in text
    assert "20 steps are computed again" in text


def test_an_approval_of_what_was_shown_starts_the_recovery_with_name_and_note(
    client_of: Any, request_: Failover
) -> None:
    answer = post(client_of("approver"), "failover-approve", request_, request_.digest, "part is dead")
    assert answer.status_code == 302
    request_.refresh_from_db()
    assert request_.state == State.FENCING
    assert (request_.decided_by, request_.decision_note) == ("approver", "part is dead")


def test_an_approval_with_another_digest_decides_nothing_and_shows_the_request_as_it_is(
    client_of: Any, request_: Failover
) -> None:
    answer = post(client_of("approver"), "failover-approve", request_, "0" * 64)
    assert answer.status_code == 409
    assert "Nothing was decided" in answer.content.decode()
    request_.refresh_from_db()
    assert request_.state == State.AWAITING_APPROVAL


def test_when_the_situation_changed_the_answer_shows_the_request_that_took_its_place(
    client_of: Any, request_: Failover
) -> None:
    rows.node("s0", role="standby", tier=1)
    Node.objects.filter(name="s1").update(health="unhealthy", health_reason="Broke meanwhile.")
    answer = post(client_of("approver"), "failover-approve", request_, request_.digest)
    assert answer.status_code == 409
    request_.refresh_from_db()
    assert request_.state == State.SUPERSEDED
    text = answer.content.decode()
    assert "Replace n2 by s0" in text
    assert f'value="{Failover.objects.get(pk=request_.superseded_by_id).digest}"' in text
    assert "slot 1: n2 -&gt; s1" in text  # the difference


def test_a_rejection_touches_nothing_and_keeps_the_note(client_of: Any, request_: Failover) -> None:
    assert (
        post(client_of("approver"), "failover-reject", request_, request_.digest, "it will be back").status_code == 302
    )
    request_.refresh_from_db()
    assert request_.state == State.REJECTED
    assert request_.decision_note == "it will be back"
    assert not request_.orders.exclude(kind__in=("prepare", "probe_serve", "probe_measure", "probe_sdc")).exists()


def test_the_second_of_two_approvals_learns_who_was_first(client_of: Any, request_: Failover) -> None:
    post(client_of("approver"), "failover-approve", request_, request_.digest)
    client = client_of("staff")
    post(client, "failover-approve", request_, request_.digest)
    text = client.get(f"/failovers/{request_.pk}/").content.decode()
    assert "was approved by approver" in text
    assert Failover.objects.count() == 1


def test_a_decision_without_a_digest_is_refused(client_of: Any, request_: Failover) -> None:
    assert post(client_of("approver"), "failover-approve", request_, "").status_code == 400
    request_.refresh_from_db()
    assert request_.state == State.AWAITING_APPROVAL


def test_the_administration_offers_and_takes_the_same_decision(client_of: Any, request_: Failover) -> None:
    client = client_of("staff")
    page = client.get(reverse("admin:reliability_failover_change", args=[request_.pk])).content.decode()
    assert 'value="Approve"' in page
    assert f'value="{request_.digest}"' in page
    stale = post(client, "admin:reliability_failover_approve", request_, "0" * 64)
    assert stale.status_code == 302
    request_.refresh_from_db()
    assert request_.state == State.AWAITING_APPROVAL
    post(client, "admin:reliability_failover_approve", request_, request_.digest, "from here")
    request_.refresh_from_db()
    assert (request_.state, request_.decided_by) == (State.FENCING, "staff")


def test_the_administration_refuses_those_without_the_permission(people: Any, request_: Failover) -> None:
    from django.test import Client

    clerk = rows.person("clerk", "viewer", is_staff=True)
    client = Client()
    client.force_login(clerk)
    assert post(client, "admin:reliability_failover_approve", request_, request_.digest).status_code == 403
    assert client.get(reverse("admin:reliability_failover_approve", args=[request_.pk])).status_code == 405
    request_.refresh_from_db()
    assert request_.state == State.AWAITING_APPROVAL


def test_nothing_but_policy_can_be_edited_in_the_administration(people: Any, request_: Failover) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    root = User.objects.create_superuser("root", password=rows.PASSWORD)
    client = Client()
    client.force_login(root)
    job = request_.job
    values = {"approval": "automatic", "unknown_action": "restart_in_place", "lease_rule": "stop", "restart_budget": 3}
    client.post(reverse("admin:reliability_job_change", args=[job.pk]), {**values, "state": "completed", "epoch": 99})
    job.refresh_from_db()
    assert (job.approval, job.lease_rule, job.restart_budget) == ("automatic", "stop", 3)
    address = reverse("admin:reliability_job_change", args=[job.pk])
    wrong = client.post(address, {**values, "class_actions": '{"network": "reboot"}'})
    assert "&#x27;reboot&#x27; is no action" in wrong.content.decode()
    client.post(address, {**values, "class_actions": '{"network": "hold"}'})
    job.refresh_from_db()
    assert job.class_actions == {"network": "hold"}
    assert (job.state, job.epoch) == ("waiting", 1)
    client.post(reverse("admin:reliability_failover_change", args=[request_.pk]), {"state": "completed"})
    request_.refresh_from_db()
    assert request_.state == State.AWAITING_APPROVAL
    for name in (
        "node",
        "job",
        "hold",
        "failover",
        "incident",
        "snapshot",
        "validation",
        "orderrecord",
        "report",
        "plan",
        "rank",
    ):
        assert client.get(reverse(f"admin:reliability_{name}_changelist")).status_code == 200
    node = Node.objects.get(name="s1")
    assert "token_hash" not in client.get(reverse("admin:reliability_node_change", args=[node.pk])).content.decode()


def test_a_hold_made_in_the_administration_goes_through_the_service(client_of: Any, people: Any, db: None) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    root = User.objects.create_superuser("root", password=rows.PASSWORD)
    client = Client()
    client.force_login(root)
    node = rows.node("n9")
    client.post(reverse("admin:reliability_hold_add"), {"node": node.pk, "reason": "part ordered"})
    hold = node.holds.get()
    assert (hold.owner, hold.reason) == ("root", "part ordered")
    client.post(reverse("admin:reliability_hold_changelist"), {"action": "release", "_selected_action": [hold.pk]})
    hold.refresh_from_db()
    assert hold.released_by == "root"


def test_incident_and_job_pages_lead_to_the_request(client_of: Any, request_: Failover) -> None:
    link = f"/failovers/{request_.pk}/"
    assert Incident.objects.get().action == Action.FAILOVER
    for url in (f"/incidents/{request_.incident_id}/", "/jobs/gpt-small/", "/", "/failovers/"):
        assert link in client_of("viewer").get(url).content.decode()


def test_a_recovery_of_a_drill_is_seen_as_one_and_needs_no_verdict(client_of: Any, request_: Failover) -> None:
    client, incident = client_of("approver"), request_.incident_id
    decision = decisions.keep(request_.incident, action=Action.FAILOVER)
    pages = [f"/failovers/{request_.pk}/", "/failovers/", f"/incidents/{incident}/", "/incidents/"]
    chip, asked = "</svg>drill</span>", reverse("decision-verdict", args=[decision.pk])
    for page in pages:
        text = client.get(page).content.decode()
        assert chip not in text, page
        assert (asked in text) == ("incidents" in page), page
    Drill.objects.create(
        job=request_.job,
        node=Node.objects.get(name="n2"),
        what="kill_rank",
        started_at=timezone.now(),
        failover=request_,
    )
    Decision.objects.update(drill=True)
    for page in pages:
        text = client.get(page).content.decode()
        assert chip in text, page
        assert ("needs no verdict" in text) == ("incidents" in page), page
