"""Shards of the trainer's own format, written and sealed as a node does it, for tests of what is read back."""

import contextlib
from pathlib import Path
from typing import Any

from reliability.agent import sealing
from reliability.tiers.records import RecordUnusable
from reliability.trainer.folder import JobFolder, Shard
from reliability.trainer.reading import load
from reliability.trainer.snapshots import MemoryTier, Saving

JOB = "job"


def seal_all(memory: Path, job: str = JOB) -> None:
    """Write the commit records that are missing, as the node's second process does."""
    for _shard, path in sealing.unsealed(memory):
        with contextlib.suppress(RecordUnusable):
            sealing.seal(path, job=job)


def write(folder: Path, state: Any, *, step: int = 1) -> Path:
    """Save a state below a folder and return the path of its commit record."""
    job = JobFolder(folder)
    job.make()
    tier = MemoryTier(job, job=JOB, epoch=1, rank=0, saving=Saving())
    shard = tier.save(step, state)
    tier.close(5.0)
    seal_all(job.memory)
    return job.memory / f"{shard.stem}.json"


def read(record: Path, live: Any = None) -> Any:
    """Return the state of a sealed shard."""
    shard, state = load(record, rank=0, live=live)
    assert isinstance(shard, Shard)
    return state
