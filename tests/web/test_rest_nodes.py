"""Nodes over REST: condition and checks, holds, quarantine and events; acting asks for what pages ask for."""

from typing import Any

import pytest
from django.utils import timezone

from reliability import models
from tests.web import rows
from tests.web.test_node_page import quarantined, standing

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> models.Node:
    return rows.node("n1", hardware_ids={"board_serial": "PF2K9ABC"})


def post(client: Any, address: str, body: Any) -> Any:
    return client.post(f"/api/v1/{address}", body, "application/json")


def listed(client: Any, address: str) -> Any:
    return client.get(f"/api/v1/{address}").json()["results"]


def test_a_node_tells_its_condition_checks_and_quarantine(client_of: Any, node: models.Node) -> None:
    cause = {
        "key": "flapping",
        "state": "degraded",
        "text": "to and fro",
        "clears": "quiet",
        "since": 1.0,
        "ended_at": None,
    }
    models.Node.objects.update(health="degraded", health_causes=[cause])
    standing(node, "clock", age_s=90)
    found = quarantined(rows.node("old", hardware_ids={"board_serial": "PF2K9ABC"}, seen_s=3600))
    told = client_of("viewer").get("/api/v1/nodes/n1/").json()
    assert told["causes"] == [cause]
    assert [(each["name"], each["state"], each["ok"]) for each in told["checks"]] == [("clock", "out of date", True)]
    assert told["quarantines"] == [found.pk]
    (row,) = listed(client_of("viewer"), "quarantines/?state=open")
    assert (row["found_as"], row["found_again"]) == ("old", ["n1"])
    assert client_of("viewer").get("/api/v1/nodes/?format=csv").status_code == 200


def test_a_hold_is_made_and_released_once_with_a_note(client_of: Any, node: models.Node) -> None:
    client = client_of("operator")
    made = post(client, "nodes/n1/hold/", {"reason": "fan", "lasts_s": 3600})
    assert made.status_code == 201
    hold = made.json()
    assert (hold["owner"], hold["node"]) == ("operator", "n1")
    assert hold["expires_at"] is not None
    missing = post(client, f"holds/{hold['id']}/release/", {})
    assert (missing.status_code, list(missing.json())) == (400, ["note"])
    assert post(client, f"holds/{hold['id']}/release/", {"note": "repaired"}).json()["release_note"] == "repaired"
    assert post(client, f"holds/{hold['id']}/release/", {"note": "again"}).status_code == 409
    assert [row["id"] for row in listed(client, "holds/?state=closed&node=n1")] == [hold["id"]]
    assert [row["kind"] for row in listed(client, "node-events/?node=n1&kind=hold")] == ["hold", "hold"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "reason"), ({"reason": ""}, "reason"), ({"reason": "x", "lasts_s": 0}, "lasts_s"), ({"why": "x"}, "why")],
)
def test_a_hold_that_makes_no_sense_is_refused_by_the_field(
    client_of: Any, node: models.Node, body: dict[str, Any], field: str
) -> None:
    answer = post(client_of("operator"), "nodes/n1/hold/", body)
    assert answer.status_code == 400
    assert field in answer.json()


def test_hardware_is_quarantined_overridden_and_released(client_of: Any, node: models.Node) -> None:
    client = client_of("operator")
    made = post(client, "nodes/n1/quarantine/", {"reason": "burnt smell"}).json()
    assert made["identities"] == ["board:pf2k9abc"]
    assert post(client, "nodes/n1/quarantine/", {"reason": "again"}).status_code == 409
    body = {"node": "n1", "note": "tested for a day"}
    assert post(client, f"quarantines/{made['id']}/override/", body).status_code == 403
    assert post(client_of("approver"), f"quarantines/{made['id']}/override/", body).status_code == 201
    assert post(client_of("approver"), f"quarantines/{made['id']}/override/", body).status_code == 409
    released = post(client, f"quarantines/{made['id']}/release/", {"note": "board replaced"}).json()
    assert released["released_by"] == "operator"
    assert [each["node"] for each in released["overrides"]] == ["n1"]


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("nodes/n1/hold/", {"reason": "x"}),
        ("nodes/n1/quarantine/", {"reason": "x"}),
        ("holds/1/release/", {"note": "x"}),
        ("quarantines/1/release/", {"note": "x"}),
        ("quarantines/1/override/", {"node": "n1", "note": "x"}),
    ],
)
def test_who_may_only_read_changes_nothing(
    client_of: Any, node: models.Node, address: str, body: dict[str, Any]
) -> None:
    assert post(client_of("viewer"), address, body).status_code == 403
    assert post(client_of(""), address, body).status_code in {401, 403}
    assert not models.Hold.objects.exists()
    assert not models.Quarantine.objects.exists()


def test_repeat_offenders_are_listed(client_of: Any, node: models.Node) -> None:
    for code in ("xid-48", "xid-95"):
        models.Incident.objects.create(node=node, code=code, fault_class="hardware", opened_at=timezone.now())
    (line,) = client_of("viewer").get("/api/v1/offenders/").json()
    assert (line["nodes"], line["in_30_days"], line["newest_code"]) == (["n1"], 2, "xid-95")
    assert client_of("viewer").get("/api/v1/offenders/?days=3").status_code == 400


@pytest.mark.parametrize("resource", ["nodes", "quarantines", "holds", "node-events"])
def test_lists_take_as_many_queries_for_many_rows_as_for_few(
    client_of: Any, node: models.Node, resource: str, django_assert_max_num_queries: Any
) -> None:
    client = client_of("viewer")
    for number in range(12):
        other = rows.node(f"x{number}")
        standing(other, "disk")
        quarantined(other)
        models.Hold.objects.create(node=other, owner="ann", reason="x", created_at=timezone.now())
        models.NodeEvent.objects.create(node=other, kind="role", text="x", at=timezone.now())
    with django_assert_max_num_queries(16):
        assert len(listed(client, f"{resource}/")) >= 12
