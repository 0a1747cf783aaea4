"""What pages say: empty, full, hostile, as fragments, and with few queries."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db.models import CharField
from django.utils import timezone
from django.utils.html import format_html

from reliability import models
from reliability.domain import program_folders
from reliability.templatetags.stepkeeper import linked
from tests.web import rows
from tests.web.test_routes import CONFIRM, PAGES, address

TEMPLATES = settings.BASE_DIR / "templates"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def text_of(client: Any, url: str, **headers: str) -> str:
    answer = client.get(url, headers=headers)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_an_empty_installation_says_what_to_do_next(client_of: Any) -> None:
    client = client_of("approver")
    text = text_of(client, "/")
    assert "No job is active" in text
    assert "No node has registered" in text
    assert "No failover waits for a decision" in text
    for name in ("jobs", "nodes", "incidents", "failovers", "standbys", "snapshots", "planner", "reports"):
        assert text_of(client, f"/{name}/")


def test_the_overview_answers_its_three_questions(client_of: Any, cluster: dict[str, Any]) -> None:
    text = text_of(client_of("approver"), "/")
    assert "1 of 2 jobs" in text
    assert "if n1 was lost now" in text
    assert "40 steps" in text  # 1240 minus 1200, the newest step complete on storage
    assert "Review and decide" in text
    assert "1 unreachable, not failed" in text


def test_a_viewer_sees_the_request_but_no_button_to_decide(client_of: Any, cluster: dict[str, Any]) -> None:
    url = address("failover", PAGES["failover"], cluster)
    assert "Only an approver can decide" in text_of(client_of("viewer"), url)
    assert 'id="approve"' not in text_of(client_of("viewer"), url)
    assert 'id="approve"' in text_of(client_of("approver"), url)


def test_a_job_that_runs_but_makes_no_steps_is_not_called_training(client_of: Any, cluster: dict[str, Any]) -> None:
    models.Rank.objects.filter(job=cluster["training"]).update(progress_at=timezone.now() - timedelta(seconds=60))
    text = text_of(client_of("viewer"), "/")
    assert "0 of 2 jobs" in text
    assert "no step lately" in text


def test_memory_of_a_node_that_left_the_job_does_not_count(client_of: Any, cluster: dict[str, Any]) -> None:
    slot = cluster["training"].slots.get(index=2)
    slot.node = cluster["standby"]
    slot.save()
    text = text_of(client_of("viewer"), "/jobs/gpt-small/")
    # a process fault goes back to what the newcomer can read: storage
    assert "<b>40 steps</b>, 12 s; back to step 1\u202f200" in text


def test_snapshots_of_an_abandoned_history_are_shown_as_such(client_of: Any, cluster: dict[str, Any]) -> None:
    models.Epoch.objects.create(
        job=cluster["training"],
        number=2,
        reason="Recovered.",
        restored_epoch=1,
        restored_step=1200,
        started_at=timezone.now(),
    )
    text = text_of(client_of("viewer"), "/jobs/gpt-small/")
    assert text.count("abandoned: the history went on from an earlier step") == 1


def test_the_timeline_has_every_stage_with_its_seconds(client_of: Any, cluster: dict[str, Any]) -> None:
    text = text_of(client_of("viewer"), f"/failovers/{cluster['done'].pk}/")
    for part in (
        "fault seen and judged",
        "7.10 s",
        "waiting for approval",
        "7.90 s",
        "restoring",
        "1.40 s",
        "first step of every rank",
    ):
        assert part in text


def test_a_superseded_request_links_its_successor_and_shows_the_difference(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    old = cluster["request"]
    models.Failover.objects.filter(pk=old.pk).update(state="superseded", ended_at=timezone.now())
    new = rows.failover(cluster["incident"], cluster["standby"], digest="f" * 64)
    models.Failover.objects.filter(pk=old.pk).update(superseded_by=new)
    event = models.FailoverEvent.objects.create(
        failover=old,
        at=timezone.now(),
        source="awaiting_approval",
        event="superseded",
        target="superseded",
        sentence="Changed.",
        detail={"changed": {"restore step": [1220, 1200]}},
    )
    assert event.pk
    text = text_of(client_of("viewer"), f"/failovers/{old.pk}/")
    assert f"Request {new.pk}</a> took its place" in text
    for page in (text, text_of(client_of("viewer"), f"/failovers/{new.pk}/")):
        assert "restore step" in page
        assert "<td>1220</td><td>1200</td>" in page


def spoil_names() -> None:
    """Give every row hostile text where the name of a code or a group stands, as rows of another version may have."""
    for model in apps.get_app_config("reliability").get_models():
        for field in model._meta.concrete_fields:
            if field.name in ("code", "group") and isinstance(field, CharField):
                for place, pk in enumerate(model._default_manager.values_list("pk", flat=True)):
                    hostile = f"{place}{HOSTILE}"[: field.max_length]
                    model._default_manager.filter(pk=pk).update(**{field.name: hostile})


def test_a_name_that_may_be_no_address_breaks_no_page() -> None:
    """Only the rows of nodes and jobs keep names that are addresses for certain; all else goes through `linked`."""
    named = re.compile(r"{% url '(?:node|job|fault-code)[a-z-]*' ([a-z_.]+)")
    sure = re.compile(r"(?:.+\.)?(?:node|job)\.name|figure\.name")
    of_row = {"fault_codes/page.html": {"code"}, "fault_codes/modes.html": {"code"}, "cells/node.html": {"record.name"}}
    wrong = [
        f"{path.relative_to(TEMPLATES)}: {name}"
        for path in TEMPLATES.rglob("*.html")
        for name in named.findall(path.read_text())
        if not sure.fullmatch(name) and name not in of_row.get(str(path.relative_to(TEMPLATES)), set())
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["", "a/b", "\n", "..", "%2e", HOSTILE, "\x00", "é"])
def test_what_is_no_address_is_linked_as_text(name: str) -> None:
    text = linked("fault-code", name, "mono")
    assert text == format_html('<span class="mono">{}</span>', name)


@pytest.mark.parametrize("name", {**PAGES, **CONFIRM})
def test_hostile_text_is_escaped_on_every_page(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    models.Node.objects.update(
        health_reason=HOSTILE,
        address=HOSTILE,
        host_facts={HOSTILE: HOSTILE},
        disks={HOSTILE: {"free_bytes": 1}},
        containers={HOSTILE: {"container": "warm"}},
    )
    models.Job.objects.update(state_reason=HOSTILE, program=[HOSTILE], image=HOSTILE)
    models.Incident.objects.update(summary=HOSTILE, reasons=[HOSTILE], close_reason=HOSTILE)
    models.Finding.objects.update(evidence=HOSTILE)
    models.Decision.objects.update(summary=HOSTILE, by_hand=HOSTILE[:70])
    models.DecisionVerdict.objects.update(reason=HOSTILE, by=HOSTILE[:70])
    models.ModeRule.objects.update(name=HOSTILE[:60], reason=HOSTILE)
    spoil_names()
    models.Hold.objects.update(reason=HOSTILE)
    models.Validation.objects.update(reason=HOSTILE, measured={"pairs": [{"node": HOSTILE, "bytes_per_s": 3.0}]})
    models.Report.objects.update(refusal=HOSTILE)
    models.FailoverEvent.objects.update(sentence=HOSTILE, actor=HOSTILE, detail={"x": HOSTILE})
    proposal = rows.proposal(HOSTILE)
    models.Failover.objects.update(
        proposal=proposal,
        decision_note=HOSTILE,
        decided_by=HOSTILE,
        refused_standbys=[{"node": HOSTILE, "reason": HOSTILE}],
    )
    text = text_of(client_of("approver"), address(name, {**PAGES, **CONFIRM}[name], cluster))
    assert "<script>alert" not in text
    assert "<img src=x" not in text


@pytest.mark.parametrize("name", PAGES)
def test_a_fragment_has_the_live_regions_of_its_page_and_not_the_frame(
    name: str, client_of: Any, cluster: dict[str, Any]
) -> None:
    client, url = client_of("approver"), address(name, PAGES[name], cluster)
    page, fragment = text_of(client, url), text_of(client, url, **{"X-Fragment": "1"})
    regions = re.compile(r'<\w+[^>]*\bid="([\w-]+)"[^>]*\bdata-live\b|<\w+[^>]*\bdata-live\b[^>]*\bid="([\w-]+)"')
    found = [regions.findall(text) for text in (page, fragment)]
    assert found[0] == found[1]
    assert ("nav", "") in found[1]
    assert "<head>" not in fragment


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique_so_that_morphing_finds_its_elements(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    ids = re.findall(r'\bid="([^"]+)"', text_of(client_of("approver"), address(name, PAGES[name], cluster)))
    assert len(ids) == len(set(ids)), sorted(item for item in ids if ids.count(item) > 1)


def test_the_overview_takes_as_many_queries_for_many_jobs_as_for_few(
    client_of: Any, cluster: dict[str, Any], django_assert_max_num_queries: Any
) -> None:
    client = client_of("approver")
    for number in range(6):
        extra = rows.job(f"extra-{number}", [rows.node(f"x{number}a"), rows.node(f"x{number}b")])
        rows.snapshot(extra, 1220)
        rows.incident(extra, models.Node.objects.get(name=f"x{number}a"))
    with django_assert_max_num_queries(25):
        client.get("/")


@pytest.mark.parametrize(
    ("url", "there", "gone"),
    [
        ("/nodes/?health=degraded", ">n5<", ">n1<"),
        ("/nodes/?role=standby", ">s1<", ">n1<"),
        ("/jobs/?state=waiting", "vit-base", "gpt-small"),
        ("/incidents/?open=yes", "node-lost on n4", "node-lost on n3"),
        ("/failovers/?state=completed", "n3", "vit-base"),
    ],
)
def test_filters_narrow_lists(url: str, there: str, gone: str, client_of: Any, cluster: dict[str, Any]) -> None:
    text = text_of(client_of("viewer"), url)
    listed = re.split(r'id="list"', text, maxsplit=1)[1]
    assert there in listed
    assert gone not in listed


def test_a_token_is_made_by_post_shown_once_and_is_the_persons_own(client_of: Any, people: Any) -> None:
    from rest_framework.authtoken.models import Token

    client = client_of("viewer")
    client.post("/reports/token/")
    first = Token.objects.get(user=people["viewer"]).key
    assert first in text_of(client, "/reports/")
    assert first not in text_of(client, "/reports/")
    client.post("/reports/token/")
    assert not Token.objects.filter(key=first).exists()
    client.post("/reports/token/delete/")
    assert not Token.objects.exists()


def test_a_check_that_ended_without_a_verdict_is_shown_as_not_judged(client_of: Any, cluster: dict[str, Any]) -> None:
    node = models.Node.objects.order_by("pk").last()
    assert node is not None
    ended = timezone.now()
    models.Validation.objects.filter(node=node).delete()
    models.Validation.objects.create(node=node, check_kind="bandwidth", started_at=ended, ended_at=ended)
    page = text_of(client_of("viewer"), f"/nodes/{node.name}/")
    assert "not judged" in page
    assert ">running</span>" not in page


def test_a_job_page_says_when_what_the_program_writes_counts(client_of: Any, cluster: dict[str, Any]) -> None:
    job, url = models.Job.objects.get(name="gpt-small"), address("job", PAGES["job"], cluster)
    assert "Snapshots by the program" not in text_of(client_of("viewer"), url)
    job.snapshot_folder = program_folders.read({"sealed_by": "marker", "marker": "DONE"}, "snapshot_folder")
    job.save()
    assert "counts when DONE lies in it" in text_of(client_of("viewer"), url)
