"""Whatever a program names its files: reports about it reach the server, and nothing waits behind one that cannot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import sendable
from reliability.agent.clock import ServerClock
from reliability.agent.identity import Identity
from reliability.agent.reporter import Reporter
from reliability.agent.server import Server
from reliability.agent.spool import Spool
from tests.agent.ingest import NODE_TOKEN, Ingest, until

IDENTITY = Identity(node="n", token=NODE_TOKEN, order_key="k", queue="q", broker_url="", heartbeat_s=0.05, lease_s=1.0)
EVIL = b"evil\xff\x80.txt".decode("utf-8", "surrogateescape")


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    server = Ingest(node="n", broker_url="")
    server.open()
    yield server
    server.close()


def reporter_of(ingest: Ingest, spool: Spool, beat: dict[str, Any]) -> Reporter:
    return Reporter(
        Server(ingest.url, clock=ServerClock()),
        spool,
        lambda: IDENTITY,
        heartbeat=lambda: beat,
        on_answer=lambda *_: None,
        on_stale=lambda _: None,
    )


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        (EVIL, "evil\\xff\\x80.txt"),
        ("\ud800", "\ufffd"),
        ("\ud83d\ude00", "\ufffd\ufffd"),
        ('schön \U0001f600 \\ " \n', 'schön \U0001f600 \\ " \n'),
    ],
)
def test_every_text_can_be_sent_and_a_byte_of_a_name_is_still_told(name: str, sent: str) -> None:
    text = sendable.text_of({name: [name]})
    assert json.loads(text.encode()) == {sent: [sent]}
    assert sendable.value_of(sendable.text_of(name)) == sent


@pytest.mark.parametrize("kept", ["by this agent", "by an older one"])
def test_a_report_with_a_name_that_is_no_text_is_sent_and_so_is_what_follows(
    tmp_path: Path, ingest: Ingest, kept: str
) -> None:
    spool = Spool(tmp_path / "spool", "life")
    spool.add("snapshot_problem", {"message": EVIL}, at=1.0, job="lm")
    if kept == "by an older one":
        spool._db.execute("UPDATE reports SET body = ?", (json.dumps({"message": EVIL}),))
    reporter = reporter_of(ingest, spool, {"jobs": [], "disks": [{"path": EVIL}]})
    reporter.report("rank_exit", {"rank": 0}, job="lm")
    reporter.start()
    until(lambda: len(ingest.reports) == 2 and len(ingest.beats) >= 2)
    assert [report["body"] for report in ingest.reports] == [{"message": "evil\\xff\\x80.txt"}, {"rank": 0}]
    assert spool.count() == 0
    reporter.stop(1.0)


@pytest.mark.parametrize(
    "kept", ['{"a": NaN}', '{"a": -Infinity}', '{"a"', "", "[" * 100_000, '{"a": "\\ud800"}x'], ids=range(6)
)
def test_what_lies_in_the_spool_and_can_never_be_sent_is_dropped_and_told(
    tmp_path: Path, ingest: Ingest, kept: str
) -> None:
    spool = Spool(tmp_path / "spool", "life")
    for _ in range(450):
        spool.add("snapshot_problem", {}, at=1.0, job="lm")
    spool._db.execute("UPDATE reports SET body = ?", (kept,))
    spool.add("rank_exit", {"rank": 0}, at=1.0, job="lm")
    reporter = reporter_of(ingest, spool, {"jobs": []})
    reporter.start()
    until(lambda: bool(ingest.reports) and bool(ingest.beats))
    assert [report["kind"] for report in ingest.reports] == ["rank_exit"]
    assert spool.dropped() == {"snapshot_problem": 450}
    reporter.stop(1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"x"])
def test_a_report_that_is_no_json_is_dropped_and_counted_not_kept(tmp_path: Path, value: object) -> None:
    spool = Spool(tmp_path / "spool", "life")
    spool.add("finding", {"value": value}, at=1.0)
    assert spool.count() == 0
    assert spool.dropped() == {"finding": 1}
    spool.close()
