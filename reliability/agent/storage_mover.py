"""The third process of a snapshot's way: from the node's SSD to the job's storage, a folder or an object store.

python -m reliability.agent.storage_mover --node=... --parent=... --jobs-dir=... --memory-dir=... --ssd-dir=...

A store that is slower than the snapshots come gets the newest each time; what was passed over is counted and told.
"""

import time
from collections.abc import Iterable, Iterator, Set
from typing import Any

from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import REPEAT_PROBLEM_S, Lane, say, where_is
from reliability.agent.mover import Mover, run
from reliability.agent.passed_over import PassedOver
from reliability.domain.snapshots import Tier
from reliability.errors import DigestMismatch, InvalidInput
from reliability.ports import TierStore
from reliability.tiers import choosing, shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

KEEP_ON_STORAGE = 8


class StorageLane(Lane):
    """One job's way from the SSD to storage."""

    tier = Tier.STORAGE
    keep = KEEP_ON_STORAGE

    def __init__(self, record: JobRecord, source: DirectoryTier, target: TierStore) -> None:
        super().__init__(record, source, target)
        self._passed_over = PassedOver(source, self.keep)
        self._told_behind_at = -REPEAT_PROBLEM_S
        self._cut_off: set[Shard] = set()
        self._noted: set[int] = set()

    def safe_step(self, safe: Floors) -> int | None:
        """Return the newest step that is complete on storage."""
        return safe.storage

    def stored_as(self, shard: Shard) -> str:
        """Return the key of a shard on storage."""
        return shard.stored_key

    def is_own(self, shard: Shard, ranks: Set[int]) -> bool:
        """Storage is shared: the shards of other nodes' ranks are not ours to touch."""
        return shard.rank in ranks

    def _take_up(self) -> None:
        """Before anything there is believed, told or removed: is it this job's, or that of another of its name?"""
        if self.record.job_key:
            self.target.claim(self.record.job_key, ranks=self.record.world_size)
        super()._take_up()
        for shard in self._told:
            self._passed_over.known(shard)

    def run(self, now: float) -> bool:
        """Copy as every lane does; tell what a slow store made it pass over."""
        copied = super().run(now)
        if not self.settled and now - self._told_behind_at >= REPEAT_PROBLEM_S and (count := self._passed_over.take()):
            self._told_behind_at = now
            self._tell_behind(count)
        return copied

    def _tell_behind(self, count: int) -> None:
        """Not when a copy takes less than the time between two saves: then something else kept the others away."""
        period_s, last_s = self._passed_over.period_s(), self._passed_over.last_s
        if period_s is None or last_s >= period_s:
            say("finding", self.record.job, _behind(count, last_s))

    def bring(self, shard: Shard, record: dict[str, Any]) -> None:
        """Copy one shard to storage; beside it stands how many were passed over for it."""
        super().bring(shard, {**record, "superseded": self._passed_over.before(shard)})

    def beside(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return how many were passed over for this one."""
        return {"superseded": record["superseded"]} if "superseded" in record else {}

    def _note_starts(self) -> None:
        """Have storage tell which line goes on, for when it is all that is left."""
        for start in self.record.epoch_starts():
            if start.epoch not in self._noted:
                self.target.note_start(start)
                self._noted.add(start.epoch)

    def _wanted(self, found: Iterable[Shard]) -> Iterator[Shard]:
        """Yield the newest first; before them those by which a step gets whole that other nodes have begun.

        Without it nodes with a slow store would each keep other steps, and none of them whole.
        """
        newest = list(super()._wanted(found))
        waiting = [shard for shard in newest if shard not in self._told]
        begun = self._begun_by_others() if len({shard.step for shard in waiting}) > 1 else set()
        if begun:
            yield from self._completing(waiting, begun)
        yield from waiting

    def _completing(self, waiting: Iterable[Shard], begun: Set[tuple[int, int]]) -> Iterator[Shard]:
        """Yield those of steps that others have begun which are newer than what is stored of their rank."""
        stored: dict[int, Shard] = {}
        for shard in self._told:
            stored[shard.rank] = max(shard, stored.get(shard.rank, shard))
        for shard in waiting:
            last = stored.get(shard.rank)
            if (shard.epoch, shard.step) in begun and (last is None or shard > last):
                yield shard

    def _begun_by_others(self) -> set[tuple[int, int]]:
        own = set(self.record.ranks)
        return {(shard.epoch, shard.step) for shard in self._shards(self.target) if shard.rank not in own}

    def _copy_newest(self) -> bool:
        self._throw_away()
        return super()._copy_newest()

    def _throw_away(self) -> None:
        """What turned out not to be whole after it was sealed goes from storage too."""
        for key in self.source.thrown_away():
            shard = shards.parse(key)
            if shard is not None:
                self.target.delete(self.stored_as(shard))
                if shard in self._told:
                    error = DigestMismatch(f"{key} was thrown away: it was not whole when it was sealed.")
                    say("snapshot_problem", self.record.job, {**where_is(shard), "tier": self.tier, **error.detail})
            self.source.forget_thrown_away(key)

    def _copy(self, shard: Shard) -> bool:
        self._sweep_given_up()
        self._note_starts()
        began = time.monotonic()
        self._cut_off.add(shard)
        with self._passed_over.watching():
            copied = super()._copy(shard)
        if copied and shard.flat_key in self.source.thrown_away():
            return False  # it is removed before it was told
        if copied:
            self._cut_off.discard(shard)
            self._passed_over.stored(shard, time.monotonic() - began)
        return copied

    def _sweep_given_up(self) -> None:
        """Remove what cut-off tries left of shards that are no longer on the SSD: nobody takes those up again."""
        there = set(self.shards_of_source())
        if self._cut_off - there:
            self.target.sweep([self.stored_as(shard) for shard in there])
            self._cut_off &= there


def _behind(count: int, last_s: float) -> dict[str, object]:
    evidence = f"Storing a snapshot takes {last_s:.1f} s, longer than until the next: the newest is stored each time."
    return {"code": "store-behind", "rank": None, "evidence": evidence, "count": count}


class StorageMover(Mover):
    """The lanes of all jobs that have a storage."""

    def lane(self, record: JobRecord) -> Lane | None:
        """Return the lane of a job, None for a job without storage or with one that nobody could use."""
        if not record.storage_dir:
            return None
        ssd = DirectoryTier(self.options.ssd_dir / record.job, owner=self.options.node, private=True)
        limit = self.options.storage_bytes_per_s
        try:
            storage = choosing.job_tier(record.storage_dir, record.job, owner=self.options.node, bytes_per_s=limit)
        except InvalidInput as error:
            say("snapshot_problem", record.job, {"tier": Tier.STORAGE, "code": error.code, "message": error.message})
            return None
        return StorageLane(record, ssd, storage)


if __name__ == "__main__":
    run(StorageMover)
