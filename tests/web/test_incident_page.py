"""The page of an incident: what to do next, why, the timeline, evidence, what is related, what people do with it."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from reliability import models
from reliability.services import incident_log
from tests.web import rows

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script> " + "x" * 900


def page(client: Client, incident: models.Incident, **asked: Any) -> str:
    answer = client.get(reverse("incident", args=[incident.pk]), asked)
    assert answer.status_code == 200
    return str(answer.content.decode())


def findings(incident: models.Incident, number: int, **values: Any) -> None:
    base: dict[str, Any] = {
        "incident": incident,
        "node": incident.node,
        "code": "xid-95",
        "fault_class": "hardware",
        "action": "failover",
        "severity": "fatal",
        "evidence": "NVRM: Xid (PCI:0000:37:00): 95",
        "found_at": timezone.now(),
    }
    models.Finding.objects.bulk_create([models.Finding(**{**base, **values}) for _ in range(number)])


def test_the_page_says_what_to_do_first_and_why(client_of: Any, cluster: dict[str, Any]) -> None:
    text = page(client_of("viewer"), cluster["incident"])
    order = [text.index(mark) for mark in ("Decide on the proposed recovery", "What happened", "Why this class")]
    assert order == sorted(order)
    assert "No rank has made a step for 7.5 s." in text
    assert 'id="say"' not in text, "a viewer is offered nothing to press"


def test_evidence_is_escaped_folded_when_long_and_can_be_copied(client_of: Any, cluster: dict[str, Any]) -> None:
    findings(cluster["incident"], 1, evidence=HOSTILE)
    text = page(client_of("viewer"), cluster["incident"])
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert f"All {len(HOSTILE)} letters" in text
    assert "data-copy=" in text


def test_the_timeline_counts_what_was_merged_and_tells_of_people_and_recoveries(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    incident = cluster["incident"]
    findings(incident, 3, count=40, found_at=timezone.now() - timedelta(seconds=5))
    incident_log.write(incident, "raised", "From restart in place to failover.")
    client = client_of("operator")
    answer = client.post(reverse("incident-note", args=[incident.pk]), {"note": "called the data centre"})
    assert answer.status_code == 302
    text = page(client, incident)
    for told in (
        "xid-95 on n4, 120 times in 3 findings",
        "From restart in place",
        "called the data centre",
        "by operator",
    ):
        assert told in text
    assert "Proposed: this is what would be done." in text


@pytest.mark.slow
def test_an_incident_of_100000_findings_is_shown_in_pages(client_of: Any, cluster: dict[str, Any]) -> None:
    incident = cluster["incident"]
    findings(incident, 2_000)
    text = page(client_of("viewer"), incident, page=3)
    assert "Page 3 of 41" in text
    assert text.count('id="finding-') == 50
    assert "2\u202f001" in text
    assert client_of("viewer").get(reverse("incident", args=[incident.pk]), {"page": "no"}).status_code == 200


def test_related_incidents_say_what_they_share(client_of: Any, cluster: dict[str, Any]) -> None:
    incident, twin = cluster["incident"], cluster["standby"]
    gone = timezone.now() - timedelta(days=1)
    models.Node.objects.filter(pk=incident.node.pk).update(
        hardware_ids={"board_serial": "SN-48151623"}, last_seen_at=gone
    )
    models.Node.objects.filter(pk=twin.pk).update(hardware_ids={"board_serial": "SN-48151623"})
    other = models.Incident.objects.create(
        node=twin, code="xid-64", summary="Row remapping failed (xid-64 on s1)", opened_at=timezone.now()
    )
    text = page(client_of("viewer"), incident)
    assert "The same hardware under another name" in text
    assert f'href="/incidents/{other.pk}/"' in text
    assert "The same code within the hour" in text


@pytest.mark.parametrize("heard", ["the node itself", "two others"])
def test_hardware_that_live_nodes_share_tells_no_machine_under_another_name(
    client_of: Any, cluster: dict[str, Any], heard: str
) -> None:
    incident, twin = cluster["incident"], cluster["standby"]
    copied = {"board_serial": "SN-48151623"}
    models.Node.objects.filter(pk__in=[incident.node.pk, twin.pk]).update(
        hardware_ids=copied, last_seen_at=timezone.now()
    )
    if heard == "two others":
        gone = timezone.now() - timedelta(days=1)
        models.Node.objects.filter(pk=incident.node.pk).update(last_seen_at=gone)
        rows.node("copy", hardware_ids=copied, last_seen_at=timezone.now())
    models.Incident.objects.create(node=twin, code="xid-64", summary="Of another machine", opened_at=timezone.now())
    assert "The same hardware under another name" not in page(client_of("viewer"), incident)


def test_closing_needs_a_note_and_waits_for_the_recovery_that_answers_it(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    client, incident = client_of("operator"), cluster["incident"]
    url = reverse("incident-close", args=[incident.pk])
    assert client.post(url, {"note": " "}).status_code == 400
    assert "is not over" in client.post(url, {"note": "done"}, follow=True).content.decode()
    alone = models.Incident.objects.create(node=cluster["node"], code="link-down", opened_at=timezone.now())
    client.post(reverse("incident-close", args=[alone.pk]), {"note": "cable replaced"})
    alone.refresh_from_db()
    assert alone.close_reason == "operator: cable replaced"
    client.post(reverse("incident-reopen", args=[alone.pk]), {"note": "it is back"})
    alone.refresh_from_db()
    assert alone.closed_at is None
    assert list(alone.events.values_list("kind", "actor")) == [("closed", "operator"), ("reopened", "operator")]


def test_an_incident_of_an_earlier_attempt_is_not_opened_again(client_of: Any, cluster: dict[str, Any]) -> None:
    old = models.Incident.objects.exclude(closed_at=None).get(job=cluster["training"])
    models.Job.objects.filter(pk=cluster["training"].pk).update(epoch=2)
    url = reverse("incident-reopen", args=[old.pk])
    assert "which is over" in client_of("operator").post(url, {"note": "again"}, follow=True).content.decode()
    old.refresh_from_db()
    assert old.closed_at is not None


def test_the_list_is_narrowed_by_state_node_code_job_and_text(client_of: Any, cluster: dict[str, Any]) -> None:
    wide = models.Incident.objects.create(
        code="xid-79", summary="Many at once", held_back=True, opened_at=timezone.now()
    )
    findings(wide, 1, node=cluster["standby"], evidence="fallen off the bus")
    client = client_of("viewer")

    def listed(**asked: str) -> set[str]:
        text = client.get(reverse("incidents"), asked).content.decode()
        return {str(each.pk) for each in models.Incident.objects.all() if f'href="/incidents/{each.pk}/"' in text}

    everything = listed()
    assert len(everything) == 3
    for asked in ({"open": "held"}, {"node": "s1"}, {"code": "xid"}, {"text": "OFF the bus"}, {"text": "Many at"}):
        assert listed(**asked) == {str(wide.pk)}, asked
    assert listed(job="vit") == {str(cluster["incident"].pk)}
    assert listed(open="no") == everything - {str(wide.pk), str(cluster["incident"].pk)}


def test_rest_gives_findings_in_pages_and_as_csv_and_a_timeline(client_of: Any, cluster: dict[str, Any]) -> None:
    incident = cluster["incident"]
    findings(incident, 30, count=2)
    client = client_of("viewer")
    listed = client.get("/api/v1/incidents/", {"text": "gone", "state": "open"}).json()["results"]
    assert [(row["id"], row["finding_count"], row["count"], len(row["findings"])) for row in listed] == [
        (incident.pk, 31, 61, 20)
    ]
    one = client.get(f"/api/v1/incidents/{incident.pk}/").json()
    assert one["next"] == "Decide on the proposed recovery."
    assert {line["kind"] for line in one["timeline"]} >= {"opened", "found"}
    paged = client.get(f"/api/v1/incidents/{incident.pk}/findings/", {"page_size": 10, "code": "xid-95"}).json()
    assert (paged["count"], len(paged["results"])) == (30, 10)
    table = client.get(f"/api/v1/incidents/{incident.pk}/findings/", {"format": "csv"})
    assert b"".join(table.streaming_content).count(b"xid-95") == 30  # type: ignore[attr-defined]
    assert client.get(f"/api/v1/incidents/{incident.pk}/findings/", {"colour": "red"}).status_code == 400


def test_rest_closes_with_a_note_by_those_who_may(client_of: Any, cluster: dict[str, Any]) -> None:
    alone = models.Incident.objects.create(node=cluster["node"], code="link-down", opened_at=timezone.now())
    url = f"/api/v1/incidents/{alone.pk}/close/"

    def post(role: str, body: Any) -> Any:
        return client_of(role).post(url, body, content_type="application/json")

    assert post("viewer", {"note": "done"}).status_code == 403
    assert post("operator", {}).status_code == 400
    assert post("operator", {"note": "done", "why": 1}).status_code == 400
    assert post("operator", {"note": "done"}).json()["state"] == "closed"
    assert post("operator", {"note": "done"}).status_code == 409


def test_what_is_held_back_is_released_by_approvers_only(client_of: Any, cluster: dict[str, Any]) -> None:
    held = models.Incident.objects.create(
        code="xid-79",
        action="hold",
        fault_class="hardware",
        held_back=True,
        meanwhile="observe",
        opened_at=timezone.now(),
        reach={
            "code": "xid-79",
            "codes": ["xid-79"],
            "nodes": ["n1", "n2"],
            "total": 3,
            "of": "cluster",
            "window_s": 60,
        },
    )
    text = page(client_of("approver"), held)
    assert "Look for what these nodes share" in text
    assert 'id="release"' in text
    url = reverse("incident-release", args=[held.pk])
    assert client_of("operator").post(url, {"note": ""}).status_code == 403
    client_of("approver").post(url, {"note": "a row lost its power"})
    held.refresh_from_db()
    assert (held.held_back, held.released_by) == (False, "approver")
    assert set(
        models.Hold.objects.filter(released_at=None, node__name__in=("n1", "n2")).values_list("owner", flat=True)
    )


def test_the_fragment_of_the_page_has_the_same_regions(client_of: Any, cluster: dict[str, Any]) -> None:
    url = reverse("incident", args=[cluster["incident"].pk])
    client = client_of("operator")
    whole, part = client.get(url).content.decode(), client.get(url, headers={"X-Fragment": "1"}).content.decode()
    for region in ("next", "what", "why", "timeline", "findings", "related"):
        assert f'id="{region}" data-live' in whole
        assert f'id="{region}" data-live' in part
    assert rows.PASSWORD
