"""Findings by the thousand from one node: counted and not repeated, others' reports in between, nothing lost.

STEPKEEPER_FLOOD=50000 takes the flood at its full size.
"""

import itertools
import json
import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability.api import ingest
from reliability.models import Finding, Incident, Report
from reliability.services import flood, incidents, reconcile, reports
from tests.services.world import Agent, World

pytestmark = pytest.mark.django_db

SIZE = int(os.environ.get("STEPKEEPER_FLOOD", "1000"))
AT = SIZE * 4 // 5
BATCH = 200
BUSY = "NVRM: Xid (PCI:0000:4d:00): 95, pid=77, name=python3, Uncontained ECC error"
GONE = "NVRM: Xid (PCI:0000:51:00): 79, GPU has fallen off the bus."
_numbers = itertools.count(10_000)


def _finding(code: str, evidence: str, **more: Any) -> dict[str, Any]:
    return {"seq": next(_numbers), "kind": "finding", "body": {"code": code, "evidence": evidence, **more}}


def _post(agent: Agent, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    batch = {"node": agent.name, "incarnation": agent.incarnation, "sent_at": 1.0, "heartbeat": None, "reports": items}
    status, answer = ingest.answer(ingest.ROUTES["/ingest/batch"], json.dumps(batch).encode(), agent.token)
    assert status == 200
    results: list[dict[str, Any]] = answer["results"]
    return results


@pytest.fixture(autouse=True)
def _no_flusher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest.flusher, "ensure", lambda: None)


def _counts(agent: Agent) -> dict[str, int]:
    found: dict[str, int] = {}
    for finding in Finding.objects.filter(node__name=agent.name):
        found[finding.code] = found.get(finding.code, 0) + finding.count
    return found


def test_a_flood_is_two_incidents_with_their_counts_and_the_different_one_is_seen_at_once(world: World) -> None:
    agent, other = world.agents["s1"], world.agents["s2"]
    items = [_finding("xid-95", BUSY) for _ in range(SIZE)]
    items[AT] = _finding("xid-79", GONE)
    seen_s = others_s = 0.0
    for start in range(0, SIZE, BATCH):
        _post(agent, items[start : start + BATCH])
        if start <= AT < start + BATCH:
            begun = time.monotonic()
            _post(other, [_finding("xid-13", "NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a")])
            reports.process_new()
            seen_s = others_s = time.monotonic() - begun
            assert Incident.objects.filter(node=agent.node, code="xid-79").exists()
            assert Finding.objects.filter(node=other.node, code="xid-13").exists()
    reports.process_new()
    assert _counts(agent) == {"xid-95": SIZE - 1, "xid-79": 1}
    assert Incident.objects.filter(node=agent.node).count() == 2
    assert not Report.objects.filter(state=Report.State.NEW).exists()
    assert Report.objects.filter(node=agent.node, kind="finding").count() == SIZE, "each stays known by its number"
    assert max(seen_s, others_s) < 10


def test_a_batch_that_is_sent_again_counts_nothing_twice(world: World) -> None:
    agent = world.agents["s1"]
    items = [_finding("xid-95", BUSY) for _ in range(50)]
    _post(agent, items)
    assert {each["status"] for each in _post(agent, items[:20])} == {"duplicate"}
    reports.process_new()
    assert {each["status"] for each in _post(agent, items[20:])} == {"duplicate"}
    reports.process_new()
    assert _counts(agent) == {"xid-95": 50}


def test_what_is_the_same_is_counted_with_what_waits_also_when_that_is_read_meanwhile(world: World) -> None:
    agent = world.agents["s1"]
    _post(agent, [_finding("xid-95", BUSY, count=3)])
    _post(agent, [_finding("xid-95", BUSY, count=4)])
    assert Report.objects.filter(state=Report.State.NEW).count() == 1
    gathered = flood.Gathered(agent.node, agent.node.last_seen_at or agent.node.registered_at)
    row = Report(node=agent.node, incarnation=agent.incarnation, seq=next(_numbers), kind="finding",
                 count=5, body={"code": "xid-95", "evidence": BUSY}, received_at=agent.node.registered_at)  # fmt: skip
    assert gathered.take(row)
    reports.process_new()  # reads what waited, between the look and the writing of the count
    reports.keep([row], gathered)
    reports.process_new()
    assert _counts(agent) == {"xid-95": 12}


def test_the_order_of_what_ends_and_begins_again_is_kept(world: World) -> None:
    agent = world.agents["s1"]
    down, up = "mlx5_core 0000:3b:00.0 eth2: Link down", "mlx5_core 0000:3b:00.0 eth2: Link up"
    _post(agent, [_finding(*each) for each in [("link-down", down), ("link-up", up), ("link-down", down)]])
    kept = Report.objects.filter(state=Report.State.NEW).order_by("id")
    assert [row.body["code"] for row in kept] == ["link-down", "link-up", "link-down"]


def test_other_nodes_get_their_turn_while_one_floods_with_what_differs(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(reports, "CHUNK", 10)
    flooding, quiet = world.agents["s1"], world.agents["s2"]
    _post(flooding, [_finding("odd-code", f"line {number}") for number in range(100)])
    _post(quiet, [_finding("xid-13", "NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a")])
    read = reports._next()
    assert Report.objects.filter(pk__in=read, node=quiet.node).exists()
    assert len(read) <= 10
    assert read == sorted(read)


def test_a_node_that_is_too_far_behind_is_told_to_send_findings_later_and_all_else_is_taken(
    world: World, monkeypatch: Any
) -> None:
    monkeypatch.setattr(flood, "MOST_WAITING", 5)
    agent = world.agents["s1"]
    refused = {"seq": next(_numbers), "kind": "order_refused", "body": {"reason": "forged", "message": "m"}}
    items = [*(_finding("odd-code", f"line {number}") for number in range(8)), _finding("odd-code", "line 0"), refused]
    told = [each["status"] for each in _post(agent, items)]
    assert told == ["accepted"] * 5 + ["later"] * 3 + ["accepted"] * 2
    reports.process_new()
    assert [each["status"] for each in _post(agent, items)] == ["duplicate"] * 5 + ["accepted"] * 3 + ["duplicate"] * 2


def test_a_reading_ends_in_time_and_asks_for_the_next(world: World, mailbox: Any) -> None:
    agent = world.agents["s1"]
    _post(agent, [_finding("odd-code", f"line {number}") for number in range(250)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "CHUNK", 20)
        assert reports.process_new(limit_s=0.0) == 20
    assert Report.objects.filter(state=Report.State.NEW).count() == 230
    assert reconcile.READING_S < reconcile.LEASE_S / 4


def test_two_witnesses_of_one_event_are_one_finding_that_names_both(world: World) -> None:
    agent = world.agents["s1"]
    line = "NVRM: Xid (PCI:0000:4d:00): 109, pid=7, name=python3, Ch 00000008"
    _post(agent, [_finding("xid-109", line)])
    reports.process_new()
    world.pass_time(30)
    _post(agent, [_finding("xid-109", "DCGM", source="dcgm", fields={"device": "0000:4d:00"})])
    reports.process_new()
    found = Finding.objects.get(code="xid-109")
    assert (found.count, found.source) == (1, "agent, dcgm")
    world.pass_time(30)
    _post(agent, [_finding("xid-109", line)])
    reports.process_new()
    assert Finding.objects.filter(code="xid-109").count() == 2, "the same line so much later is an event of its own"
    assert incidents.undecided_nodes() == []


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_findings_come_and_are_read_no_count_is_lost_or_doubled(world: World, data: st.DataObject) -> None:
    agent = world.agents["s1"]
    for kept in (Finding, Incident, Report):
        kept.objects.all().delete()
    kinds = [
        *(("xid-95", f"NVRM: Xid (PCI:0000:{bus}:00): 95, pid=7, name=a") for bus in ("4d", "51")),
        ("link-down", "mlx5_core 0000:3b:00.0 eth2: Link down"),
        ("link-up", "mlx5_core 0000:3b:00.0 eth2: Link up"),
        ("odd-code", "one"),
        ("odd-code", "two"),
    ]
    sent: dict[str, int] = {}
    items: list[dict[str, Any]] = []
    for kind, count in data.draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 5)), max_size=30)):
        items.append(_finding(*kind, count=count))
        sent[kind[0]] = sent.get(kind[0], 0) + count
        if data.draw(st.integers(0, 3)) == 0:
            _post(agent, items)
            items = data.draw(st.sampled_from([[], items]))  # the answer may be lost: all of it comes again
        if data.draw(st.integers(0, 5)) == 0:
            reports.process_new()
    _post(agent, items)
    reports.process_new()
    told = _counts(agent)
    told.pop("link-up", None)  # a link that comes up and was not down is no finding
    sent.pop("link-up", None)
    assert told == sent
