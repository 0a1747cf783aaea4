"""The second process of a snapshot's way: from the memory of the node to its SSD.

    python -m reliability.agent.ssd_mover --node=... --parent=... --jobs-dir=... --memory-dir=... --ssd-dir=...

One thread seals what trainers leave ready in memory, the other writes what is sealed to the SSD, straight from the
slots. The newest goes first; saves that were written over before their turn are counted, and told with the next copy.
"""

import argparse
import os
from collections.abc import Sequence, Set
from typing import Any

from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import Lane
from reliability.agent.mover import Mover, run
from reliability.agent.sealer import Sealer
from reliability.domain.snapshots import Tier
from reliability.errors import TierError
from reliability.tiers import direct
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

KEEP_ON_SSD = 4


class SsdLane(Lane):
    """One job's way from memory to the SSD."""

    tier = Tier.SSD
    keep = KEEP_ON_SSD

    def __init__(self, record: JobRecord, source: DirectoryTier, target: DirectoryTier, sealer: Sealer) -> None:
        super().__init__(record, source, target)
        self._ssd = target
        self._sealer = sealer
        self._generations: dict[tuple[int, int], int] = {}

    def bring(self, shard: Shard, record: dict[str, Any]) -> None:
        """Copy one shard to the SSD: from the slot where it lies, or as a file when it is none."""
        if "chunks" not in record:
            super().bring(shard, record)
            return
        whose, generation = (shard.epoch, shard.rank), int(record.get("generation") or 0)
        record["superseded"] = max(generation - self._last(whose) - 1, 0)
        path = self.source.data_path(shard.flat_key)
        with direct.held(path, self._sealer.maps) as content:
            fresh = self._sealer.is_fresh(path)
            self._ssd.put_from_memory(content, self.stored_as(shard), record=record, fresh=fresh)
        self._generations[whose] = max(generation, self._last(whose))

    def beside(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return how many saves were written over before this one's turn."""
        return {"superseded": record["superseded"]} if "superseded" in record else {}

    def _last(self, whose: tuple[int, int]) -> int:
        """Return the generation of a rank's newest copy of an attempt; 0 when there is none."""
        if whose not in self._generations:
            self._generations[whose] = max(map(self._generation, self._of(whose)), default=0)
        return self._generations[whose]

    def _of(self, whose: tuple[int, int]) -> list[Shard]:
        return [shard for shard in self._shards(self._ssd) if (shard.epoch, shard.rank) == whose]

    def _generation(self, shard: Shard) -> int:
        try:
            return int(self._ssd.record(shard.flat_key).get("generation") or 0)
        except (TierError, TypeError, ValueError):
            return 0

    def safe_step(self, safe: Floors) -> int | None:
        """Return the newest step of which every rank has a copy on an SSD or on storage."""
        return safe.ssd

    def stored_as(self, shard: Shard) -> str:
        """Return the key of a shard on the SSD."""
        return shard.flat_key

    def is_own(self, shard: Shard, ranks: Set[int]) -> bool:
        """Every shard on a node's SSD is its own."""
        return True


class SsdMover(Mover):
    """The lanes of all jobs from memory to the SSD, and the thread that seals."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.sealer = Sealer(options.memory_dir, wake)

    def wakers(self) -> Sequence[int]:
        """Return the handle that becomes readable when a shard was sealed; the sealer runs from then on."""
        self.sealer.start()
        return (self._woken,)

    def lane(self, record: JobRecord) -> Lane:
        """Return the lane of a job."""
        memory = DirectoryTier(self.options.memory_dir / record.job / "mem")
        ssd = DirectoryTier(self.options.ssd_dir / record.job, owner=self.options.node, private=True)
        return SsdLane(record, memory, ssd, self.sealer)


if __name__ == "__main__":
    run(SsdMover)
