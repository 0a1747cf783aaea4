"""Planned maintenance as people and programs see, plan and end it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from reliability import models
from reliability.selectors import maintenance_pages

pytestmark = pytest.mark.django_db


def entered(**other: Any) -> dict[str, Any]:
    ends = timezone.now() + timedelta(hours=2)
    base = {"scope": "nodes", "nodes": "n1, n2", "domain": "", "starts_at": "", "reason": "new firmware"}
    return {**base, "ends_at": ends.strftime("%Y-%m-%dT%H:%M"), "muted": ["observe", "stay", "quiet"], **other}


def test_an_operator_plans_and_ends_and_a_viewer_only_looks(client_of: Any, cluster: dict[str, Any]) -> None:
    assert client_of("viewer").post(reverse("maintenance-plan"), entered()).status_code == 403
    client = client_of("operator")
    answer = client.post(reverse("maintenance-plan"), entered())
    window = models.MaintenanceWindow.objects.get(reason="new firmware")
    assert answer.url == reverse("maintenance-window", args=[window.pk])
    assert [node.name for node in window.nodes.order_by("name")] == ["n1", "n2"]
    text = client.get(answer.url).content.decode()
    assert "under way" in text
    assert 'data-local="' in text
    assert "new firmware" in client.get(reverse("node", args=["n1"])).content.decode()
    assert "Call it off" not in text
    client.post(reverse("maintenance-end", args=[window.pk]))
    window.refresh_from_db()
    assert window.ended_by == "operator"
    assert "ended early" in client.get(answer.url).content.decode()
    again = client.post(reverse("maintenance-end", args=[window.pk]), follow=True).content.decode()
    assert "is over" in again


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"nodes": ""}, "none is named"),
        ({"nodes": "n1 nobody"}, "nobody is no node here"),
        ({"ends_at": "2020-01-01T00:00"}, "is not after the start"),
        ({"ends_at": "soon"}, "Enter a valid date"),
        ({"muted": []}, "required"),
        ({"reason": ""}, "required"),
        ({"scope": "domain"}, "is the domain of no node"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_with_the_reason(
    client_of: Any, cluster: dict[str, Any], wrong: dict[str, Any], told: str
) -> None:
    answer = client_of("operator").post(reverse("maintenance-plan"), entered(**wrong))
    assert answer.status_code == 400
    assert told in answer.content.decode()
    assert models.MaintenanceWindow.objects.get().reason == "new switches"


def test_the_calendar_shows_each_window_on_every_day_it_touches(client_of: Any, db: None) -> None:
    window = models.MaintenanceWindow.objects.create(
        scope="all",
        starts_at=datetime(2026, 3, 1, 23, 30, tzinfo=UTC),
        ends_at=datetime(2026, 3, 3, tzinfo=UTC),
        planned_until=datetime(2026, 3, 3, tzinfo=UTC),
        reason="row 7",
        planned_by="ann",
        planned_at=timezone.now(),
    )
    month = maintenance_pages.month(datetime(2026, 3, 1, tzinfo=UTC).date(), datetime(2026, 3, 2, tzinfo=UTC))
    days = {day.day.day: day for week in month.weeks for day in week if day.inside}
    assert [number for number, day in days.items() if day.rows] == [1, 2]
    assert days[2].today
    text = client_of("viewer").get(reverse("maintenance"), {"month": "2026-03"}).content.decode()
    assert text.count(f'href="/maintenance/{window.pk}/"') == 3
    for odd in ("", "2026-13", "0000-00", "9999-12", "nonsense"):
        assert client_of("viewer").get(reverse("maintenance"), {"month": odd}).status_code == 200


def test_rest_lists_plans_and_ends(client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("operator")
    now = timezone.now()
    body = {"scope": "nodes", "nodes": ["n1"], "ends_at": (now + timedelta(hours=1)).isoformat(), "reason": "fans"}
    made = client.post("/api/v1/maintenance/", body, content_type="application/json")
    assert made.status_code == 201, made.content
    assert (made.json()["state"], made.json()["nodes"], made.json()["quiet"]) == ("under way", ["n1"], True)
    viewer = client_of("viewer")
    assert viewer.post("/api/v1/maintenance/", body, content_type="application/json").status_code == 403
    for asked, number in (
        ({"state": "under way"}, 1),
        ({"state": "over"}, 0),
        ({"node": "n1"}, 1),
        ({"node": "n2"}, 0),
    ):
        assert viewer.get("/api/v1/maintenance/", asked).json()["count"] == number, asked
    assert b"fans" in b"".join(viewer.get("/api/v1/maintenance/", {"format": "csv"}).streaming_content)
    url = f"/api/v1/maintenance/{made.json()['id']}/end/"
    assert viewer.post(url).status_code == 403
    assert client.post(url).json()["ended_by"] == "operator"
    assert client.post(url).status_code == 409


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ends_at": "2026-03-01T12:00:00"}, "ends_at"),
        ({"ends_at": 7}, "ends_at"),
        ({"nodes": ["nobody"]}, "nodes"),
        ({"nodes": "n1"}, "nodes"),
        ({"scope": "galaxy"}, "scope"),
        ({"observe": "yes"}, "observe"),
        ({"color": "red"}, "color"),
    ],
)
def test_rest_refuses_what_makes_no_sense_by_name(
    client_of: Any, cluster: dict[str, Any], wrong: dict[str, Any], field: str
) -> None:
    ends = (timezone.now() + timedelta(hours=1)).isoformat()
    body = {"scope": "nodes", "nodes": ["n1"], "ends_at": ends, "reason": "fans", **wrong}
    answer = client_of("operator").post("/api/v1/maintenance/", body, content_type="application/json")
    assert answer.status_code == 400
    assert [name.partition(".")[0].partition("[")[0] for name in answer.json()] == [field]
