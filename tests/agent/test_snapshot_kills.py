"""kill -9 at any moment: a whole snapshot always loads, and never an older one than the last that was told."""

import json
import os
import random
import select
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.agent import jobrecord
from reliability.agent.jobrecord import JobRecord
from tests.agent.stamped import JOB, Child, Hints, make_job, move, seal_left, train, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("STEPKEEPER_KILLS", "20"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """The node's folders, on a tmpfs as the memory tier is."""
    place = Path(tempfile.mkdtemp(dir="/dev/shm"))
    for name in ("jobs", "memory", "ssd"):
        (place / name).mkdir()
    make_job(place / "memory" / JOB)
    jobrecord.save(place / "jobs", JobRecord(job=JOB, epoch=1, started_epoch=1, ranks=[0]))
    yield place
    shutil.rmtree(place)


def test_a_trainer_killed_at_any_moment_leaves_its_newest_ready_snapshot(folder: Path) -> None:
    root = folder / "memory" / JOB
    hints, newest = Hints(root), None
    chance = random.Random(seed := random.randrange(10**6))
    for kill in range(KILLS):
        mode = "lazy" if kill % 2 else "sync"
        trainer = Child(lambda epoch=kill + 1, start=newest, mode=mode: train(root, epoch, start, mode))
        told = hints.newest(20.0, until_one=True) if kill % 4 else 0  # one in four is killed while it starts
        told = max(told, hints.newest(chance.uniform(0.0, 0.08)))
        trainer.kill()
        told = max(told, hints.newest(0.0))
        seal_left(root / "mem")
        found = whole(root / "mem")
        assert max((shard.step for shard in found), default=0) >= max(told, newest.step if newest else 0), (seed, kill)
        newest = max(found, default=None)
    assert newest is not None
    assert newest.step > KILLS / 2
    assert hints.problems == []
    assert sum(path.stat().st_blocks for path in (root / "mem").iterdir()) * 512 < 4 * 9e6, "slots are taken over"
    hints.close()


def test_process_2_killed_at_any_moment_leaves_every_copy_it_told(folder: Path) -> None:
    root, ssd = folder / "memory" / JOB, folder / "ssd" / JOB
    trainer = Child(lambda: train(root, 1, None, "sync"))
    chance = random.Random(seed := random.randrange(10**6))
    newest = 0
    try:
        for kill in range(KILLS):
            reader, writer = os.pipe()
            mover = Child(lambda told=writer: move(folder, told))
            os.close(writer)
            late = 0.25 if newest else 0.25 * (kill + 1)  # on a busy machine it takes long to get anywhere
            told = steps_told(reader, chance.uniform(0.0, late))
            mover.kill()
            told = max(told, steps_told(reader, 1.0))
            os.close(reader)
            found = whole(ssd) if ssd.exists() else {}
            newest = max(newest, told)
            assert max((shard.step for shard in found), default=0) >= newest, (seed, kill)
        assert newest > 0
        assert trainer.alive()
    finally:
        trainer.kill()


def steps_told(reader: int, limit_s: float) -> int:
    """Return the newest step of a copy that process 2 told within a time, or before its end."""
    said, end = b"", time.monotonic() + limit_s
    while (left := end - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        piece = os.read(reader, 65536)
        if not piece:
            break
        said += piece
    lines = [json.loads(line) for line in said.split(b"\n")[:-1]]
    assert [line for line in lines if line["kind"] != "snapshot_copy"] == []
    return max((line["body"]["step"] for line in lines), default=0)
