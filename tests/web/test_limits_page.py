"""Limits are set on a page and over REST, hold at once, and those that would cause false alarms are refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse

from reliability import conf
from reliability.models import LimitChange
from reliability.services import limits

pytestmark = pytest.mark.django_db
VALUES = {
    "silence_s": 10,
    "proof_s": 3,
    "lone_node_s": 60,
    "radius_share": 0.4,
    "radius_nodes": 6,
    "radius_window_s": 90,
    "reason": "slow network",
}


@pytest.fixture(autouse=True)
def as_the_settings_say() -> Iterator[None]:
    conf.change_limits({})
    yield
    conf.change_limits({})


def test_limits_that_are_set_hold_at_once_and_are_kept_with_who_and_why(client_of: Any) -> None:
    client = client_of("approver")
    assert client.post(reverse("limits-set"), VALUES).status_code == 302
    kept = LimitChange.objects.get()
    assert (kept.changed_by, kept.reason, kept.values["silence_s"]) == ("approver", "slow network", 10)
    assert conf.cluster_policy().silence_s == 10
    assert conf.cluster_policy().radius.nodes == 6
    assert "slow network" in client.get(reverse("limits")).content.decode()
    conf.change_limits({})  # another process
    limits.refresh()
    assert conf.cluster_policy().silence_s == 10


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"silence_s": 3.5}, "less than three heartbeats (3 s) plus the worst retry of an agent (1 s)"),
        ({"silence_s": "nan"}, "Enter a number"),
        ({"lone_node_s": 5}, "shorter than the silence limit"),
        ({"silence_s": 100, "lone_node_s": 60}, "shorter than the silence limit"),
        ({"radius_share": 0}, "is no share"),
        ({"radius_nodes": 1}, "is less than two"),
        ({"radius_window_s": 0}, "From 1 to 3600 seconds"),
        ({"reason": ""}, "required"),
    ],
)
def test_a_form_that_would_cause_false_alarms_is_refused_with_the_reason(
    client_of: Any, wrong: dict[str, Any], told: str
) -> None:
    answer = client_of("approver").post(reverse("limits-set"), {**VALUES, **wrong})
    assert answer.status_code == 400
    assert told in answer.content.decode()
    assert not LimitChange.objects.exists()
    assert conf.cluster_policy().silence_s == 6


def test_a_silence_limit_below_the_lease_is_refused_with_the_reason(client_of: Any, settings: Any) -> None:
    settings.STEPKEEPER = {**settings.STEPKEEPER, "lease_s": 5.0}
    answer = client_of("approver").post(reverse("limits-set"), {**VALUES, "silence_s": 4.5})
    assert answer.status_code == 400
    assert "5.0 s is longer than the silence limit (4.5 s)" in answer.content.decode()


def test_limits_that_do_not_go_with_settings_that_changed_since_are_passed_over(settings: Any) -> None:
    limits.set_limits({"silence_s": 5}, by="ada", reason="quick network")
    settings.STEPKEEPER = {**settings.STEPKEEPER, "heartbeat_s": 2.0, "silence_s": 9.0}
    limits.refresh()
    assert conf.cluster_policy().silence_s == 9


def test_rest_reads_for_all_and_sets_for_approvers(client_of: Any) -> None:
    def put(role: str, body: Any) -> Any:
        return client_of(role).put("/api/v1/limits/", body, content_type="application/json")

    told = client_of("viewer").get("/api/v1/limits/").json()
    assert (told["silence_s"], told["least_silence_s"], told["retry_s"]) == (6, 4, pytest.approx(3))
    assert put("operator", {"silence_s": 8, "reason": "why"}).status_code == 403
    assert put("approver", {"silence_s": 8, "reason": "why"}).json()["silence_s"] == 8
    refused: dict[str, Any] = {"silence_s": 2, "silence": 9, "radius_nodes": 1.5}
    for field, value in refused.items():
        answer = put("approver", {"reason": "why", field: value})
        assert (answer.status_code, list(answer.json())) == (400, [field]), field
