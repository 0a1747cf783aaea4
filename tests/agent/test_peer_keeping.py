"""Whoever keeps a neighbour's shards ends when its order does, also when that comes before it began."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.jobs import LocalJobs
from reliability.agent.peer_keeping import PeerKeeping
from reliability.agent.peer_serving import PARTNERS
from reliability.agent.probes.children import Child, Children
from reliability.runtimes.process import ProcessRuntime
from tests.agent.ingest import until

JOB = "lm"


@pytest.fixture
def keeping(folder: Path) -> Iterator[PeerKeeping]:
    (folder / "memory" / PARTNERS).mkdir(parents=True)
    jobs = LocalJobs(
        node="n0",
        runtime=ProcessRuntime(folder / "runtime"),
        memory_dir=folder / "memory",
        ssd_dir=folder / "ssd",
        jobs_dir=folder / "jobs",
        report=lambda *_args, **_more: None,
    )
    keeping = PeerKeeping(
        memory_dir=folder / "memory", jobs=jobs, log_dir=folder / "log", report=lambda *_args, **_more: None
    )
    yield keeping
    keeping.stop()


def order(node: str = "n1", ranks: tuple[int, ...] = (0,), kept: tuple[int, ...] | None = None) -> dict[str, Any]:
    peer = {"node": node, "address": "127.0.0.1", "port": 9, "token": "t" * 32, "ranks": list(ranks)}
    named = {} if kept is None else {"kept_ranks": list(kept)}
    return {"peer": peer, "limit_s": 60, "bytes_per_s": 0, **named}


def running(keeping: PeerKeeping) -> int:
    return len(keeping._children._running)


@pytest.mark.parametrize("how", ["forget", "end_below", "kept again"])
def test_what_ends_before_its_child_began_never_begins(
    keeping: PeerKeeping, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    real, may_begin, asked = Children.begin, threading.Event(), threading.Event()

    def late(self: Children, *given: Any) -> Child:
        asked.set()
        assert may_begin.wait(10)
        return real(self, *given)

    monkeypatch.setattr(Children, "begin", late)
    keeping.keep(order(), job=JOB, epoch=1)
    assert asked.wait(10)
    threading.Timer(0.1, may_begin.set).start()
    if how == "forget":
        keeping.forget(JOB)
    elif how == "end_below":
        keeping.end_below(JOB, 2)
    else:
        keeping.keep(order(), job=JOB, epoch=1)
    until(lambda: running(keeping) == (how == "kept again"), 10)
    assert not keeping.folder(JOB).exists() or how != "forget"


def test_the_folder_is_gone_after_the_release_whatever_was_being_written(keeping: PeerKeeping) -> None:
    keeping.keep(order(), job=JOB, epoch=1)
    until(keeping.folder(JOB).exists, 10)
    keeping.forget(JOB)
    assert running(keeping) == 0
    assert not keeping.folder(JOB).exists()


def test_a_pair_that_an_order_names_no_more_is_ended_and_the_others_go_on(keeping: PeerKeeping) -> None:
    keeping.keep(order("n1", (0,)), job=JOB, epoch=1)
    keeping.keep(order("n2", (1,)), job=JOB, epoch=1)
    keeping.keep(order("n1", (0,)), job="other", epoch=1)
    until(lambda: running(keeping) == 3, 10)
    keeping.keep(order("n3", (2,), kept=(1, 2)), job=JOB, epoch=1)
    until(lambda: sorted(keeping._keeping) == [("lm", "n2"), ("lm", "n3"), ("other", "n1")], 10)
    until(lambda: running(keeping) == 3, 10)
