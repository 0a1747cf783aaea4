"""The second process of a snapshot's way: from the memory of the node to its SSD.

python -m reliability.agent.ssd_mover --node=... --parent=... --jobs-dir=... --memory-dir=... --ssd-dir=...
"""

from collections.abc import Set

from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import Lane
from reliability.agent.mover import Mover, run
from reliability.domain.snapshots import Tier
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

KEEP_ON_SSD = 4


class SsdLane(Lane):
    """One job's way from memory to the SSD."""

    tier = Tier.SSD
    keep = KEEP_ON_SSD

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
    """The lanes of all jobs from memory to the SSD."""

    def lane(self, record: JobRecord) -> Lane:
        """Return the lane of a job."""
        memory = DirectoryTier(self.options.memory_dir / record.job / "mem")
        ssd = DirectoryTier(self.options.ssd_dir / record.job, owner=self.options.node, private=True)
        return SsdLane(record, memory, ssd)


if __name__ == "__main__":
    run(SsdMover)
