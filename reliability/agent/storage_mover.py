"""The third process of a snapshot's way: from the node's SSD to the job's storage.

python -m reliability.agent.storage_mover --node=... --parent=... --jobs-dir=... --memory-dir=... --ssd-dir=...
"""

from collections.abc import Set

from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import Lane
from reliability.agent.mover import Mover, run
from reliability.domain.snapshots import Tier
from reliability.tiers import choosing
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

KEEP_ON_STORAGE = 8


class StorageLane(Lane):
    """One job's way from the SSD to storage."""

    tier = Tier.STORAGE
    keep = KEEP_ON_STORAGE

    def safe_step(self, safe: Floors) -> int | None:
        """Return the newest step that is complete on storage."""
        return safe.storage

    def stored_as(self, shard: Shard) -> str:
        """Return the key of a shard on storage."""
        return shard.stored_key

    def is_own(self, shard: Shard, ranks: Set[int]) -> bool:
        """Storage is shared: the shards of other nodes' ranks are not ours to touch."""
        return shard.rank in ranks


class StorageMover(Mover):
    """The lanes of all jobs that have a storage folder."""

    def lane(self, record: JobRecord) -> Lane | None:
        """Return the lane of a job, None for a job without storage."""
        if not record.storage_dir:
            return None
        ssd = DirectoryTier(self.options.ssd_dir / record.job, owner=self.options.node, private=True)
        storage = choosing.job_tier(record.storage_dir, record.job, owner=self.options.node)
        return StorageLane(record, ssd, storage)


if __name__ == "__main__":
    run(StorageMover)
