"""What waits for a person is shown with the way on: held nodes, jobs without a proposal, what a rank said last."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from reliability import models
from tests.web import rows
from tests.web.test_pages import text_of


def ended_rank(job: models.Job, tail: str) -> models.Report:
    node = job.slots.select_related("node").first().node
    body = {"rank": 0, "exit_code": 1, "signal": None, "tail": tail, "last_step": 3}
    report = models.Report.objects.create(
        node=node, incarnation="a", seq=1, kind="rank_exit", job_name=job.name, epoch=1, body=body,
        received_at=timezone.now(), state="processed",
    )  # fmt: skip
    incident = rows.incident(job, node, code="exit-1", summary="A rank ended")
    models.Finding.objects.filter(incident=incident).update(report=report)
    return report


def test_a_held_node_is_seen_on_the_overview_with_the_way_to_release_it(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    free = models.Node.objects.get(name="s1")
    models.Hold.objects.create(node=free, owner="ops", reason="part ordered", created_at=timezone.now())
    text = text_of(client_of("operator"), "/")
    assert "<small>held</small>" in text
    assert "<small>held, unhealthy</small>" in text
    assert "is held by ops: part ordered" in text
    assert 'href="/nodes/s1/#holds">Release it' in text
    assert "Release it" not in text_of(client_of("viewer"), "/")
    listed = text_of(client_of("viewer"), "/nodes/?held=yes")
    assert ">s1<" in listed
    assert ">s2<" not in listed


def test_a_waiting_job_without_a_proposal_can_be_proposed_again_or_stopped(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    client, job = client_of("operator"), cluster["waiting"]
    assert "Propose again" not in text_of(client, f"/jobs/{job.name}/")
    models.Failover.objects.filter(pk=cluster["request"].pk).update(state="rejected", ended_at=timezone.now())
    page = text_of(client, f"/jobs/{job.name}/")
    assert f'action="/jobs/{job.name}/propose/"' in page
    assert f'href="/jobs/{job.name}/stop/"' in page
    assert "vit-base</a> waits for a person" in text_of(client, "/")
    answer = client.post(f"/jobs/{job.name}/propose/")
    newest = models.Failover.objects.order_by("-pk")[0]
    assert newest.pk != cluster["request"].pk
    assert answer.url == f"/failovers/{newest.pk}/"
    assert client_of("viewer").post(f"/jobs/{job.name}/propose/").status_code == 403


def test_the_last_output_of_a_rank_is_shown_whole_and_escaped(client_of: Any, cluster: dict[str, Any]) -> None:
    report = ended_rank(cluster["training"], "Traceback\n" + "line <b>\n" * 200 + "ValueError: bad sample")
    incident = report.finding.incident
    for url in ("/jobs/gpt-small/", f"/incidents/{incident.pk}/"):
        text = text_of(client_of("viewer"), url)
        assert "ValueError: bad sample" in text
        assert text.count("line &lt;b&gt;") == 200


def test_a_plain_program_is_shown_by_its_life_and_not_by_steps(client_of: Any, db: None) -> None:
    job = rows.job("plain-job", [rows.node("n1")], mode="plain")
    models.Rank.objects.update(step=None, step_s=None, progress_at=None, loss=None)
    overview = text_of(client_of("viewer"), "/")
    assert "1 of 1 job\n" in overview
    assert "plain program: watched by its exit" in overview
    page = text_of(client_of("viewer"), f"/jobs/{job.name}/")
    assert "Snapshot period" not in page
    assert "no step lately" not in page


def test_a_job_that_is_over_has_no_fault_to_come_and_no_growing_ages(client_of: Any, cluster: dict[str, Any]) -> None:
    job = cluster["training"]
    models.Job.objects.filter(pk=job.pk).update(state="completed", ended_at=timezone.now() - timedelta(minutes=5))
    page = text_of(client_of("viewer"), "/jobs/gpt-small/")
    assert "What would a fault cost now?" not in page
    assert "From where could it go on?" in page
    figures = page.split('id="figures"')[1].split('id="ranks"')[0]
    assert figures.count("data-at") == 1  # when its plan was applied; nothing else grows older
    assert "submit it under another name" in page


def test_equal_incidents_are_one_line_with_a_count(client_of: Any, db: None) -> None:
    job = rows.job("lm", [rows.node("n1")])
    node = models.Node.objects.get()
    for _ in range(4):
        rows.incident(job, node, code="exit-1", summary="A rank ended (exit-1 on n1)")
    text = text_of(client_of("viewer"), "/")
    assert text.count("A rank ended (exit-1 on n1)") == 1
    assert "4 times" in text


def test_a_standby_that_once_served_a_finished_job_is_listed_as_free(client_of: Any, db: None) -> None:
    standby = rows.node("s1", role="standby")
    rows.job("old", [standby], state="completed")
    assert ">s1<" in text_of(client_of("viewer"), "/standbys/")
    assert "old" not in text_of(client_of("viewer"), "/nodes/").split('id="list"')[1]
    assert client_of("viewer").get("/api/nodes/s1/").json()["jobs"] == []


def test_the_table_of_nodes_for_spreadsheets_has_holds_and_free_space(client_of: Any, db: None) -> None:
    node = rows.node("n1", disks={"ssd": {"free_bytes": 12, "total_bytes": 20}})
    models.Hold.objects.create(node=node, owner="ops", reason="fan is loud", created_at=timezone.now())
    answer = client_of("viewer").get("/api/nodes/?format=csv")
    heading, row = answer.getvalue().decode().splitlines()
    assert "ssd_free_bytes" in heading
    assert "reason=fan is loud" in row
    assert ",12," in row
