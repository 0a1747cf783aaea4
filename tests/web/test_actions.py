"""Drills, holds, checks and stopping a job, through their forms."""

from typing import Any

import pytest

from reliability import models
from tests.web import rows


@pytest.fixture
def job(db: None) -> models.Job:
    """A job that trains on two nodes and has saved."""
    made = rows.job("gpt-small", [rows.node("n1"), rows.node("n2")])
    rows.snapshot(made, 1220)
    return made


def test_a_drill_orders_the_fault_on_the_chosen_node(client_of: Any, job: models.Job) -> None:
    node = models.Node.objects.get(name="n2")
    answer = client_of("operator").post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk}, follow=True)
    assert "The drill runs: kill a rank on n2" in answer.content.decode()
    drill = models.Drill.objects.get()
    assert (drill.node, drill.what, drill.started_by) == (node, "kill_rank", "operator")
    assert models.OrderRecord.objects.filter(kind="drill", node=node).count() == 1


def test_a_node_of_another_job_cannot_be_drilled(client_of: Any, job: models.Job) -> None:
    other = rows.node("x1")
    answer = client_of("operator").post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": other.pk})
    assert answer.status_code == 200
    assert "valid choice" in answer.content.decode()
    assert not models.Drill.objects.exists()


def test_a_second_drill_is_refused_in_words(client_of: Any, job: models.Job) -> None:
    client, node = client_of("operator"), models.Node.objects.get(name="n2")
    client.post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk})
    answer = client.post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk}, follow=True)
    assert "A drill of job gpt-small is going on" in answer.content.decode()


def test_stopping_a_job_tells_its_nodes(client_of: Any, job: models.Job) -> None:
    client_of("operator").post("/jobs/gpt-small/stop/")
    job.refresh_from_db()
    assert job.state != "running"


def test_a_hold_needs_a_reason_and_names_its_owner(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    assert client.post("/nodes/n1/hold/", {"reason": ""}).status_code == 400
    client.post("/nodes/n1/hold/", {"reason": "fan is loud"})
    hold = models.Hold.objects.get()
    assert (hold.owner, hold.reason) == ("operator", "fan is loud")
    client.post(f"/holds/{hold.pk}/release/", {"note": "repaired"})
    hold.refresh_from_db()
    assert hold.released_by == "operator"


def test_a_check_can_be_asked_for(client_of: Any, job: models.Job) -> None:
    rows.node("s1", role="standby")
    client_of("operator").post("/nodes/s1/validate/")
    assert set(models.Validation.objects.values_list("check_kind", flat=True)) == {"bandwidth", "sdc"}


def test_a_failure_domain_is_set_shown_and_taken_back(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    answer = client.post("/nodes/n1/domain/", {"domain": " rack-7 "}, follow=True)
    assert "n1 fails together with the nodes of rack-7." in answer.content.decode()
    assert models.Node.objects.get(name="n1").failure_domain == "rack-7"
    assert 'value="rack-7"' in client.get("/nodes/n1/").content.decode()
    assert "rack-7" in client_of("viewer").get("/nodes/n1/").content.decode()
    assert "/nodes/n1/domain/" not in client_of("viewer").get("/nodes/n1/").content.decode()
    client.post("/nodes/n1/domain/", {"domain": ""})
    assert models.Node.objects.get(name="n1").failure_domain == ""


@pytest.mark.parametrize("domain", ["x" * 81, "a\nb"])
def test_a_failure_domain_that_cannot_be_used_is_refused_at_its_field(
    client_of: Any, job: models.Job, domain: str
) -> None:
    answer = client_of("operator").post("/nodes/n1/domain/", {"domain": domain})
    assert answer.status_code == 400
    assert answer.context["domain_form"].errors["domain"]
    assert models.Node.objects.get(name="n1").failure_domain == ""


def test_a_failure_domain_is_set_only_with_the_token_of_the_form(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    client.handler.enforce_csrf_checks = True
    assert client.post("/nodes/n1/domain/", {"domain": "rack-7"}).status_code == 403
    assert models.Node.objects.get(name="n1").failure_domain == ""


def test_the_page_of_snapshots_says_who_keeps_whose_copies_and_why_a_node_has_no_partner(
    client_of: Any, job: models.Job
) -> None:
    url = "/jobs/gpt-small/snapshots/"
    assert "Kept by" not in client_of("viewer").get(url).content.decode()
    models.Job.objects.update(partner_copies=True)
    page = client_of("viewer").get(url)
    assert [(each.owner, each.keeper) for each in page.context["ledger"].partners.pairs] == [("n1", "n2"), ("n2", "n1")]
    assert 'id="partner-n1"' in page.content.decode()
    for name in ("n1", "n2"):
        client_of("operator").post(f"/nodes/{name}/domain/", {"domain": "rack-7"})
    said = client_of("viewer").get(url).content.decode()
    assert "All nodes of the job lie in the failure domain rack-7 of n1." in said
    assert said.count(">nobody<") == 2
