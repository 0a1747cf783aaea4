"""Findings by the thousand on one node: they wait as one with a count, and everything else still gets through."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.clock import ServerClock
from reliability.agent.identity import Identity
from reliability.agent.reporter import Reporter
from reliability.agent.server import Server
from reliability.agent.spool import Spool
from tests.agent.ingest import NODE_TOKEN, Ingest, until

GONE = {"code": "xid-95", "evidence": "Xid 95", "fields": {"device": "0000:4d:00"}}
OTHER = {"code": "xid-79", "evidence": "Xid 79", "fields": {"device": "0000:51:00"}}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool.sqlite3", "i1")
    yield spool
    spool.close()


def _waiting(spool: Spool) -> list[tuple[str, int]]:
    return [(report.body["code"], report.body.get("count", 1)) for report in spool.next(1000)]


def test_the_same_finding_waits_once_with_its_count_and_a_different_one_beside_it(spool: Spool) -> None:
    for number in range(5_000):
        spool.add("finding", OTHER if number == 4_000 else GONE, at=1000.0 + number / 1e6)
    assert _waiting(spool) == [("xid-95", 4_999), ("xid-79", 1)]


def test_what_was_given_out_to_be_sent_is_never_changed_afterwards(spool: Spool) -> None:
    spool.add("finding", GONE, at=1.0)
    sent = spool.next(10)
    spool.add("finding", GONE, at=1.1)
    spool.add("finding", GONE, at=1.2)
    assert _waiting(spool) == [("xid-95", 1), ("xid-95", 2)]
    spool.done(sent)
    assert _waiting(spool) == [("xid-95", 2)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"at": 1.0}, {"at": 7.0}),
        ({"at": 9.0}, {"at": 1.0}),
        ({"at": 1.0, "epoch": 1, "job": "lm"}, {"at": 1.0, "epoch": 2, "job": "lm"}),
    ],
)
def test_what_is_another_event_or_of_another_attempt_is_not_merged(
    spool: Spool, before: dict[str, Any], after: dict[str, Any]
) -> None:
    spool.add("finding", GONE, **before)
    spool.add("finding", GONE, **after)
    assert len(_waiting(spool)) == 2


def test_a_link_that_goes_down_and_up_and_down_stays_in_that_order(spool: Spool) -> None:
    down, up = ({"code": f"link-{word}", "evidence": "x", "fields": {"device": "eth2"}} for word in ("down", "up"))
    for body in (down, down, up, down, down, up):
        spool.add("finding", body, at=1.0)
    assert _waiting(spool) == [("link-down", 2), ("link-up", 1), ("link-down", 2), ("link-up", 1)]


def test_what_was_rolled_back_with_its_place_counts_nothing_up(spool: Spool) -> None:
    spool.add("finding", OTHER, at=1.0)
    with pytest.raises(RuntimeError), spool.whole():  # noqa: PT012 (the error is what makes it roll back)
        spool.add("finding", GONE, at=1.0)
        raise RuntimeError
    spool.add("finding", OTHER, at=1.0)
    spool.add("finding", GONE, at=1.0)
    assert sorted(_waiting(spool)) in ([("xid-79", 1), ("xid-79", 1), ("xid-95", 1)], [("xid-79", 2), ("xid-95", 1)])


def test_a_new_life_of_the_agent_changes_no_count_of_the_one_before(tmp_path: Path) -> None:
    first = Spool(tmp_path / "spool.sqlite3", "i1")
    first.add("finding", GONE, at=1.0)
    first.close()
    second = Spool(tmp_path / "spool.sqlite3", "i2")
    second.add("finding", GONE, at=1.1)
    assert [report.incarnation for report in second.next(10)] == ["i1"]
    assert second.count() == 2
    second.close()


def test_a_server_that_is_behind_gets_no_findings_for_a_while_and_everything_else_at_once(
    spool: Spool, ingest: Ingest
) -> None:
    kept = Identity(
        node=ingest.node, token=NODE_TOKEN, order_key=ingest.key, queue="q", broker_url="", heartbeat_s=0.1, lease_s=5.0
    )
    full = [True]
    ingest.later = lambda item: full[0] and item["kind"] == "finding"
    server = Server(ingest.url, clock=ServerClock())
    reporter = Reporter(
        server,
        spool,
        lambda: kept,
        heartbeat=lambda: {"jobs": [], "disks": {}},
        on_answer=lambda answer, beat: None,
        on_stale=lambda error: None,
    )
    numbers = itertools.count()
    for _ in range(300):
        reporter.report("finding", {"code": "odd", "evidence": f"line {next(numbers)}"})
    reporter.start()
    try:
        reporter.report("order_refused", {"reason": "forged", "message": "m", "order": ""})
        until(lambda: ingest.of_kind("order_refused"), 20)
        beats = len(ingest.beats)
        until(lambda: len(ingest.beats) > beats + 3, 20)
        assert ingest.of_kind("finding") == []
        answered = reporter.answered_at
        until(lambda: reporter.answered_at > answered, 20)
        full[0] = False
        until(lambda: len(ingest.of_kind("finding")) == 300, 20)
        assert [each["evidence"] for each in ingest.of_kind("finding")] == [f"line {n}" for n in range(300)]
    finally:
        reporter.stop(2.0)
        server.close()
