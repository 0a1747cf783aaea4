"""How does one step of a program become a shard on the SSD, with its record beside it?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import program_shards
from reliability.agent.lane import with_drain
from reliability.agent.program_listing import Listing
from reliability.errors import CopyMissing
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.trainer import layout


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a shard comes from: the job, the place and name of the step, its stamp, when it was written last."""

    job: str
    key: str
    stamp: str
    taken_at: float
    passed_over: int


def put(ssd: DirectoryTier, shard: Shard, source: Source, *, place: Path, listing: Listing | None) -> None:
    """Write one shard, unless an earlier life of this process did and only could not note it.

    `listing` is None for the ranks without files. Raises ChangedStep, UnfitStep, TierFull, TierUnreachable.
    """
    if _was_put(ssd, shard, source.stamp):
        return
    head, size = program_shards.plan_of(
        listing, job=source.job, shard=shard, generation=shard.step, taken_at=source.taken_at
    )
    program_shards.check_room(ssd.root, size)
    made: dict[str, Any] = {}

    def write(target: Path) -> int:
        sealed = program_shards.write(target, head, size, place=place, listing=listing, owner=ssd.owner)
        made.update(digest=sealed.digest, chunks=sealed.chunks, sums=sealed.sums)
        return sealed.size_bytes

    record = {
        "job": source.job,
        "epoch": shard.epoch,
        "step": shard.step,
        "rank": shard.rank,
        "taken_at": source.taken_at,
        "format": layout.FORMAT,
        "superseded": source.passed_over,
        "program": {"name": source.key, "stamp": source.stamp},
    }
    # How long training stood still for it nobody saw; the drain counts from the last write of the program.
    ssd.put_written(shard.flat_key, write, lambda: {**with_drain({**record, "stall_s": 0.0}), **made, "stall_s": None})


def _was_put(ssd: DirectoryTier, shard: Shard, stamp: str) -> bool:
    try:
        program = ssd.record(shard.flat_key).get("program")
    except CopyMissing:
        return False
    return isinstance(program, dict) and program.get("stamp") == stamp
