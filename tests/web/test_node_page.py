"""The page of a node: its condition and why, checks with ages, holds, quarantine, history; the list, worst first."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from reliability import models
from tests.web import rows

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def standing(node: models.Node, name: str, ok: bool | None = True, *, age_s: float = 3, **more: Any) -> None:
    now = timezone.now()
    at = now - timedelta(seconds=age_s)
    values = {"since": at, "checked_at": at, "limit_s": 35.0, "stale_at": at + timedelta(seconds=35)}
    models.NodeCheck.objects.create(node=node, name=name, ok=ok, **(values | more))


def quarantined(node: models.Node, **more: Any) -> models.Quarantine:
    values = {"found_as": node.name, "identities": ["board:pf2k9abc"], "reason": "GPU fell off the bus"}
    times = {"created_at": timezone.now(), "created_by": "automation"}
    return models.Quarantine.objects.create(node=node, **(values | times | more))


@pytest.fixture
def node() -> models.Node:
    cause = {
        "key": "check:gpu", "state": "unknown", "text": "Check gpu gave no result: did not return within 5 s",
        "clears": "The check passes for 30 s.", "since": timezone.now().timestamp() - 60, "ended_at": None,
    }  # fmt: skip
    held = {"key": "hold:1", "state": "healthy", "text": "Held by bob: fan", "clears": "The hold is released.",
            "since": timezone.now().timestamp() - 60, "ended_at": None}  # fmt: skip
    return rows.node(
        "n1", health="unknown", health_reason=cause["text"], health_causes=[cause, held], health_since=timezone.now(),
        hardware_ids={"board_serial": "PF2K9ABC"},
    )  # fmt: skip


def test_a_node_says_why_it_is_what_it_is_and_what_clears_it(client_of: Any, node: models.Node) -> None:
    told = text_of(client_of("viewer").get("/nodes/n1/"))
    for words in ("did not return within 5 s", "What clears it: The check passes for 30 s.", "Unknown is not failed"):
        assert words in told


def test_checks_are_shown_with_their_ages_and_one_out_of_date_is_never_green(client_of: Any, node: models.Node) -> None:
    standing(node, "disks")
    standing(node, "gpu", None, reason="It hangs.")
    standing(node, "clock", True, age_s=90)
    answer = client_of("viewer").get("/nodes/n1/")
    told = text_of(answer)
    for words in ("disks passes", "gpu no result", "clock out of date", "1 min 30 s ago", "out of date after 35 s"):
        assert words in told
    listed = re.search(r'id="checks".*?</section>', answer.content.decode(), re.DOTALL)
    assert listed is not None
    assert listed.group().count('class="chip ok"') == 1


def test_a_node_without_checks_says_so(client_of: Any, node: models.Node) -> None:
    assert "No checks reported" in text_of(client_of("viewer").get("/nodes/n1/"))


def test_a_hold_may_end_by_itself_and_its_release_needs_a_word_of_why(client_of: Any, node: models.Node) -> None:
    client = client_of("operator")
    client.post("/nodes/n1/hold/", {"reason": "fan", "lasts": "8h"})
    hold = models.Hold.objects.get()
    assert hold.expires_at is not None
    left = (hold.expires_at - timezone.now()).total_seconds()
    assert 7.9 * 3600 < left <= 8 * 3600
    told = text_of(client.post(f"/holds/{hold.pk}/release/", follow=True))
    assert "Say why the hold is released" in told
    told = text_of(client.post(f"/holds/{hold.pk}/release/", {"note": "Fan replaced"}, follow=True))
    assert "released by operator" in told
    assert "Fan replaced" in told
    assert "was released already" in text_of(client.post(f"/holds/{hold.pk}/release/", {"note": "x"}, follow=True))


def test_a_length_of_hold_that_is_none_is_refused_beside_its_field(client_of: Any, node: models.Node) -> None:
    answer = client_of("operator").post("/nodes/n1/hold/", {"reason": "fan", "lasts": "soon"})
    assert answer.status_code == 400
    assert not models.Hold.objects.exists()


def test_bad_hardware_under_another_name_links_to_where_it_was_found(client_of: Any, node: models.Node) -> None:
    before = rows.node("old", hardware_ids={"board_serial": "PF2K9ABC"}, seen_s=3600)
    incident = models.Incident.objects.create(node=before, fault_class="hardware", opened_at=timezone.now())
    found = quarantined(before, incident=incident)
    answer = client_of("operator").get("/nodes/n1/")
    told = text_of(answer)
    assert "found bad as old" in told
    assert "board serial pf2k9abc" in told
    assert f'href="/incidents/{incident.pk}/"' in answer.content.decode()
    assert "Use n1 all the same" not in told
    assert "Use n1 all the same" in text_of(client_of("approver").get("/nodes/n1/"))
    refused = client_of("operator").post(f"/quarantine/{found.pk}/override/n1/", {"note": "new board"})
    assert refused.status_code == 403
    told = text_of(
        client_of("approver").post(f"/quarantine/{found.pk}/override/n1/", {"note": "new board"}, follow=True)
    )
    assert "Used all the same: new board" in told
    listed = text_of(client_of("viewer").get("/quarantine/"))
    for words in ("GPU fell off the bus", "Found again in n1", "n1 is used all the same: new board"):
        assert words in listed


def test_a_person_quarantines_and_releases_with_a_word_of_why(client_of: Any, node: models.Node) -> None:
    client = client_of("operator")
    assert client.post("/nodes/n1/quarantine/", {"reason": ""}).status_code == 400
    client.post("/nodes/n1/quarantine/", {"reason": "burnt smell"})
    found = models.Quarantine.objects.get()
    assert found.identities == ["board:pf2k9abc"]
    assert "is needed" in text_of(client.post(f"/quarantine/{found.pk}/release/", {"node": "n1"}, follow=True))
    client.post(f"/quarantine/{found.pk}/release/", {"node": "n1", "note": "board replaced"})
    assert "board replaced" in text_of(client.get("/quarantine/"))


def test_the_history_of_a_node_has_its_events_and_incidents_the_newest_first(client_of: Any, node: models.Node) -> None:
    now = timezone.now()
    models.NodeEvent.objects.create(node=node, kind="role", text="It is a training node now.", at=now)
    models.NodeEvent.objects.create(node=node, kind="hold", text="Held: fan", actor="bob", at=now - timedelta(hours=2))
    models.Incident.objects.create(node=node, summary="GPU fell off", opened_at=now - timedelta(hours=1))
    told = text_of(client_of("viewer").get("/nodes/n1/"))
    places = [told.index(words) for words in ("It is a training node now.", "GPU fell off", "Held: fan")]
    assert places == sorted(places)
    assert "hold, by bob" in told


def test_checks_that_came_to_the_same_at_once_are_one_line_of_the_history(client_of: Any, node: models.Node) -> None:
    at = timezone.now()
    for name in ("gpus", "disks"):
        text, detail = f"Check {name} gives no result: Checks do not run.", {"check": name, "ok": None}
        models.NodeEvent.objects.create(node=node, kind="check", at=at, text=text, detail=detail)
    told = text_of(client_of("viewer").get("/nodes/n1/"))
    assert "2 checks give no result: disks, gpus. Checks do not run." in told


def test_the_list_shows_the_worst_first_and_sorts_by_condition(client_of: Any) -> None:
    for name, health in (
        ("a", "healthy"),
        ("b", "degraded"),
        ("c", "unreachable"),
        ("d", "unhealthy"),
        ("e", "unknown"),
    ):
        rows.node(name, health=health)
    client = client_of("viewer")
    order = re.findall(r'href="/nodes/(\w)/"', client.get("/nodes/").content.decode())
    assert order == ["d", "c", "e", "b", "a"]
    order = re.findall(r'href="/nodes/(\w)/"', client.get("/nodes/?sort=-health").content.decode())
    assert order == ["a", "b", "e", "c", "d"]


def test_every_field_of_the_page_has_a_label(client_of: Any, node: models.Node) -> None:
    quarantined(node)
    models.Hold.objects.create(node=node, owner="ann", reason="fan", created_at=timezone.now())
    page = client_of("approver").get("/nodes/n1/").content.decode()
    fields = re.findall(r'<(?:input|select)[^>]*?id="([^"]+)"', page)
    assert len(fields) == len(set(fields)) >= 6
    for name in fields:
        assert f'for="{name}"' in page, name
