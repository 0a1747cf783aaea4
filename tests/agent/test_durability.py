"""What must outlive a loss of power is on the disk before anything follows from it, and that is quick enough."""

import os
import stat
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import config, identity
from reliability.agent.identity import Identity
from reliability.agent.orderbook import OrderBook
from reliability.agent.reporter import Reporter
from reliability.agent.server import Answer
from reliability.agent.spool import URGENT, Spool
from reliability.tiers.directory import DirectoryTier
from tests.agent.ingest import until
from tests.agent.shardfiles import digest

IDENTITY = Identity(node="n", token="t", order_key="k", queue="q", broker_url="", heartbeat_s=0.05, lease_s=1.0)
FULL = 2


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The folders and files that were forced to the disk."""
    paths: set[str] = set()
    real = os.fsync

    def fsync(handle: int) -> None:
        paths.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_the_folder_of_a_new_folder_is_forced_to_the_disk(tmp_path: Path, synced: set[str]) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    (tmp_path / "storage").mkdir()
    DirectoryTier(tmp_path / "storage" / "lm").put(source, "e1/s1-r0", digest=digest(b"x"))
    expected = {tmp_path / "storage", tmp_path / "storage" / "lm", tmp_path / "storage" / "lm" / "e1"}
    assert {str(path) for path in expected} <= synced


def test_the_folder_of_a_private_tier_is_forced_to_the_disk(tmp_path: Path, synced: set[str]) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    DirectoryTier(tmp_path / "lm", private=True).put(source, "e1-s1-r0", digest=digest(b"x"))
    assert {str(tmp_path), str(tmp_path / "lm")} <= synced
    assert stat.S_IMODE((tmp_path / "lm").stat().st_mode) == 0o700


def test_an_identity_is_forced_to_the_disk_with_its_name(tmp_path: Path, synced: set[str]) -> None:
    identity.save(tmp_path, IDENTITY)
    assert str(tmp_path) in synced
    assert identity.load(tmp_path) == IDENTITY
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]


def test_folders_that_the_agent_makes_are_for_its_user_alone_and_durable(tmp_path: Path, synced: set[str]) -> None:
    argv = ["--server=http://127.0.0.1:9", "--name=n", "--address=127.0.0.1", "--runtime=process"]
    made = [tmp_path / "new" / name for name in ("data", "memory", "ssd")]
    config.parse([*argv, *(f"--{path.name}-dir={path}" for path in made)], {})
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert {str(tmp_path), str(tmp_path / "new")} <= synced


def level_of(book: Any) -> int:
    return int(book._db.execute("PRAGMA synchronous").fetchone()[0])


def test_urgent_reports_and_orders_are_forced_to_the_disk_and_routine_reports_are_not(tmp_path: Path) -> None:
    spool, book = Spool(tmp_path / "spool", "life"), OrderBook(tmp_path / "orders")
    levels = {}
    for kind in ("snapshot_copy", *sorted(URGENT), "snapshot_problem"):
        spool.add(kind, {}, at=0.0)
        levels[kind] = level_of(spool) == FULL
    assert {kind for kind, full in levels.items() if full} == URGENT
    assert level_of(book) == FULL
    spool.close()
    book.close()


@pytest.mark.parametrize("what", ["urgent report", "epoch", "nonce"])
def test_being_forced_to_the_disk_holds_nothing_up(tmp_path: Path, what: str) -> None:
    spool, book = Spool(tmp_path / "spool", "life"), OrderBook(tmp_path / "orders")
    actions: dict[str, Callable[[int], Any]] = {
        "urgent report": lambda turn: spool.add("rank_exit", {"rank": turn, "tail": "x" * 2000}, at=0.0),
        "epoch": lambda turn: book.raise_epoch("lm", turn + 1),
        "nonce": lambda turn: book.remember(f"n{turn}", expires_at=1e12, now=0.0),
    }
    took = []
    for turn in range(50):
        began = time.perf_counter()
        actions[what](turn)
        took.append(time.perf_counter() - began)
    assert statistics.median(took) < 0.1
    spool.close()
    book.close()


class Forgetful:
    """A server that answers, but about another report than those that it got."""

    def __init__(self) -> None:
        self.asked = 0

    def batch(self, body: Mapping[str, Any], *, token: str) -> Answer:
        del token
        self.asked += bool(body["reports"])
        results = [{"seq": 10**6, "status": "accepted"}] if body["reports"] else []
        return Answer(status=200, body={"results": results}, asked_at=0.0)


def test_an_answer_that_settles_only_other_reports_is_not_asked_for_again_without_a_pause(tmp_path: Path) -> None:
    server, spool = Forgetful(), Spool(tmp_path / "spool", "life")
    reporter = Reporter(
        server,  # type: ignore[arg-type]
        spool,
        lambda: IDENTITY,
        heartbeat=dict,
        on_answer=lambda *_: None,
        on_stale=lambda _: None,
    )
    reporter.start()
    reporter.report("rank_exit", {"rank": 0})
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 0.6)
    assert 1 <= server.asked < 10
    assert spool.count() == 1
    reporter.stop(0.1)
