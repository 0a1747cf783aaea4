"""The right to work for a job on an SSD: given back when nothing is to be done, and nobody waits for it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reliability.agent import floors, jobrecord
from reliability.agent.clock import steady
from reliability.agent.floors import Floors
from reliability.agent.holding import WAIT_S, Hold
from reliability.errors import TierConflict
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.ingest import until
from tests.agent.moverprocess import JOB, MoverProcess
from tests.agent.shardfiles import commit

KEY = "a" * 32


@pytest.fixture
def mover(tmp_path: Path) -> Iterator[MoverProcess]:
    mover = MoverProcess(tmp_path, "ssd_mover")
    mover.record.job_key, mover.record.world_size = KEY, 1
    mover.save()
    yield mover
    mover.kill()


def on_ssd(mover: MoverProcess, job: str = JOB) -> list[str]:
    return sorted(DirectoryTier(mover.ssd / job).keys(""))


def change(mover: MoverProcess, *, released: bool) -> None:
    mover.record.released = released
    mover.save()
    mover.wake()


def is_free(mover: MoverProcess) -> bool:
    hold = Hold(mover.ssd, JOB, "another")
    try:
        hold.take(0, quietly=True)
    except TierConflict:
        return False
    hold.release()
    return True


def test_a_job_that_was_released_may_be_worked_for_by_another_agent_and_is_taken_up_again(mover: MoverProcess) -> None:
    commit(mover.memory, Shard(1, 10, 0), b"x")
    mover.start()
    until(lambda: on_ssd(mover) == ["e1-s10-r0"], 20)
    assert not is_free(mover)
    change(mover, released=True)
    until(lambda: is_free(mover), 20)
    change(mover, released=False)
    commit(mover.memory, Shard(1, 20, 0), b"y")
    mover.wake()
    until(lambda: on_ssd(mover) == ["e1-s10-r0", "e1-s20-r0"], 20)
    assert not is_free(mover)
    assert mover.problems() == []
    (mover.jobs / f"{JOB}.json").unlink()
    mover.wake()
    until(lambda: is_free(mover), 20)


def test_what_another_agents_job_left_meanwhile_is_not_touched_for_a_released_one_and_set_aside_for_a_new_attempt(
    mover: MoverProcess,
) -> None:
    commit(mover.memory, Shard(1, 10, 0), b"x")
    mover.start()
    until(lambda: on_ssd(mover) == ["e1-s10-r0"], 20)
    change(mover, released=True)
    until(lambda: is_free(mover), 20)
    place = DirectoryTier(mover.ssd / JOB, private=True)
    place.set_aside()
    DirectoryTier(mover.ssd / JOB, private=True).claim("b" * 32, ranks=1)
    commit(mover.ssd / JOB, Shard(1, 10, 0), b"theirs")
    may_go = {"ssd": [[1, 10, 0]]}
    floors.save(mover.jobs, JOB, Floors(epoch=1, ssd=40, storage=40, may_go=may_go, said_at=steady()))
    commit(mover.memory, Shard(1, 15, 0), b"x")
    mover.wake()
    time_out = steady() + 3 * WAIT_S
    until(lambda: is_free(mover) or steady() > time_out, 20)
    assert on_ssd(mover) == ["e1-s10-r0"]
    change(mover, released=False)
    until(lambda: [problem["code"] for problem in mover.problems()] == ["tier_conflict"], 20)
    until(lambda: "e1-s15-r0" in on_ssd(mover), 20)
    assert len(list(mover.ssd.glob(f"{JOB}.aside-*"))) == 2, "nothing of theirs is lost"


def test_a_place_in_use_is_told_after_a_while_and_holds_up_no_other_job(mover: MoverProcess) -> None:
    theirs = Hold(mover.ssd, JOB, "another")
    theirs.take()
    other = replace(mover.record, job="other", job_key="c" * 32)
    jobrecord.save(mover.jobs, other)
    memory = mover.folder / "memory" / "other" / "mem"
    memory.mkdir(parents=True)
    commit(mover.memory, Shard(1, 10, 0), b"x")
    commit(memory, Shard(1, 10, 0), b"x", job="other")
    mover.start()
    until(lambda: on_ssd(mover, "other") == ["e1-s10-r0"], 20)
    assert mover.problems() == [], "an earlier life of the same agent may be about to end"
    assert theirs.asked() is None
    until(lambda: [problem["code"] for problem in mover.problems()] == ["tier_conflict"], 20)
    asked = theirs.asked()
    assert asked is not None
    assert "node n" in asked.message
    began = time.monotonic()
    commit(memory, Shard(1, 20, 0), b"x", job="other")
    mover.wake()
    until(lambda: len(on_ssd(mover, "other")) == 2, 20)
    assert time.monotonic() - began < WAIT_S
    assert on_ssd(mover) == []
    theirs.release()
    until(lambda: on_ssd(mover) == ["e1-s10-r0"], 20)
