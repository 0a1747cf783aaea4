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
    "seen": 0,
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
        ({"radius_nodes": "9" * 400}, "out of range"),
        ({"radius_nodes": "-" + "9" * 400}, "out of range"),
        ({"silence_s": "9" * 400}, "Enter a number"),
        ({"proof_s": "9" * 300}, "out of range"),
        ({"seen": ""}, "Load the page again"),
        ({"seen": "9" * 400}, "Load the page again"),
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


def _refused(client: Any, **values: Any) -> Any:
    answer = client.post(reverse("limits-set"), {**VALUES, **values})
    assert answer.status_code == 409
    assert "somebody set the limits meanwhile" in answer.content.decode()
    return answer.context["form"]


def test_a_change_of_limits_that_somebody_else_set_meanwhile_is_refused_and_undoes_nothing(client_of: Any) -> None:
    client = client_of("approver")
    assert client.post(reverse("limits-set"), VALUES).status_code == 302
    seen = client.get(reverse("limits")).context["form"].initial["seen"]
    assert client.post(reverse("limits-set"), {**VALUES, "proof_s": 4, "seen": seen}).status_code == 302
    form = _refused(client, silence_s=12, seen=seen, reason="mine")
    assert conf.cluster_policy().proof_s == 4
    assert LimitChange.objects.count() == 2
    shown = {name: form[name].value() for name in ("silence_s", "proof_s", "reason")}
    assert shown == {"silence_s": "12", "proof_s": "4.0", "reason": "mine"}, "what was typed, and what holds"
    assert "approver set it to 4 meanwhile" in str(form.errors["proof_s"])
    assert client.post(reverse("limits-set"), form.data).status_code == 302
    assert (conf.cluster_policy().silence_s, conf.cluster_policy().proof_s) == (12, 4)


def test_a_limit_that_both_changed_stays_as_typed_beside_what_the_other_set(client_of: Any) -> None:
    client = client_of("approver")
    limits.set_limits({"proof_s": 4}, by="ada", reason="slow steps")
    form = _refused(client, proof_s=5, lone_node_s=60, seen=0)
    assert form["proof_s"].value() == "5"
    assert "ada set it to 4 meanwhile; yours is still entered" in str(form.errors["proof_s"])


def test_rest_refuses_a_change_of_limits_by_an_older_version_and_names_the_version_in_force(client_of: Any) -> None:
    client = client_of("approver")

    def put(**body: Any) -> Any:
        return client.put("/api/v1/limits/", {"reason": "why", **body}, content_type="application/json")

    first = client.get("/api/v1/limits/").json()["version"]
    second = put(silence_s=8, version=first).json()["version"]
    assert (first, second) == (0, LimitChange.objects.get().pk)
    refused = put(silence_s=9, version=first)
    assert (refused.status_code, conf.cluster_policy().silence_s) == (409, 8)
    assert put(silence_s=9, version=second).status_code == 200
    assert list(put(silence_s=9, version="1").json()) == ["version"]
