"""The second process of a snapshot's way: from the memory of the node to its SSD.

    python -m reliability.agent.ssd_mover --node=... --parent=... --jobs-dir=... --memory-dir=... --ssd-dir=...

One thread seals what trainers leave ready in memory, the other writes what is sealed to the SSD, straight from the
slots. The newest goes first; saves that were written over before their turn are counted, and told with the next copy.
"""

import argparse
import functools
import os
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from reliability.agent import sealing
from reliability.agent.floors import Floors
from reliability.agent.holding import Hold
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import Lane, say, with_drain
from reliability.agent.mover import Mover, run
from reliability.agent.program_watch import ProgramWatch
from reliability.agent.sealer import Sealer
from reliability.domain.snapshots import Tier
from reliability.errors import CopyMissing, ReliabilityError, TierConflict, TierError
from reliability.tiers import direct, shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard

KEEP_ON_SSD = 4


class SsdLane(Lane):
    """One job's way from memory to the SSD."""

    tier = Tier.SSD
    keep = KEEP_ON_SSD

    def __init__(
        self,
        record: JobRecord,
        source: DirectoryTier,
        target: DirectoryTier,
        sealer: Sealer,
        programs: ProgramWatch | None = None,
        hold: Hold | None = None,
    ) -> None:
        super().__init__(record, source, target)
        self._programs = programs
        self._hold = hold
        self._ssd = target
        self._sealer = sealer
        self._generations: dict[tuple[int, int], int] = {}
        self._failed: dict[tuple[int, int], int] = {}

    def run(self, now: float) -> bool:
        """Copy as every lane does; a program's last step may be waited for when all else is settled.

        What was brought here to begin from is not copied before it has begun: whose job it is comes with the start.
        """
        if not (self.record.job_key or self.record.started_epoch):
            return False
        if not self.settled and not self._may_work(now):
            return False
        self._tell_asked()
        copied = super().run(now)
        if self._programs is not None and not self._programs.is_done(self.record):
            self.settled = False
        if self.settled:
            self.let_go()
        return copied

    def let_go(self) -> None:
        """Another agent of this machine may work for a job of this name once this one has nothing to do."""
        super().let_go()
        if self._hold is not None:
            self._hold.release()

    def _may_work(self, now: float) -> bool:
        """Take the right to work here unless another agent of this machine has it; nobody waits for it."""
        if self._hold is None or self._hold.held:
            return True
        try:
            if not self._hold.take_at_once():
                return False
        except ReliabilityError as error:
            self.at = None
            self._trouble(error, now)
            return False
        if self._is_ours():
            return True
        self._taken_up = False
        if self.record.released:
            self.let_go()  # nothing there is of this job any more, and nothing more comes
        return not self.settled

    def _is_ours(self) -> bool:
        """Return whether what lies on the SSD is still of this job: it was out of sight for a while."""
        if self._taken_up and self.record.job_key:
            try:
                self._ssd.claim(self.record.job_key, ranks=self.record.world_size)
            except TierConflict:
                return False
        return True

    def _tell_asked(self) -> None:
        """Tell when another agent of this machine was to work for a job of this name here."""
        asked = self._hold.asked() if self._hold is not None else None
        if asked is not None:
            nowhere = {"snapshot_epoch": None, "step": None, "rank": None}
            say("snapshot_problem", self.record.job, {**nowhere, "tier": self.tier, **asked.detail})

    def _copy_newest(self) -> bool:
        sealed = self._sealed_by_programs()
        for shard in sealed:
            self._tell_copy(shard)
        return super()._copy_newest() or bool(sealed)

    def _sealed_by_programs(self) -> list[Shard]:
        if self._programs is None:
            return []
        try:
            return self._programs.look(self.record)
        except TierError:
            self.at = self._programs.at
            raise

    def _take_up(self) -> None:
        """Before anything on the SSD is believed: what another job of this name left there is set aside.

        Left: while another agent of this machine works for such a job there, this is not reached.
        """
        if self.record.job_key:
            try:
                self._ssd.claim(self.record.job_key, ranks=self.record.world_size)
            except TierConflict as error:
                aside = self._ssd.set_aside()
                self._ssd.claim(self.record.job_key, ranks=self.record.world_size)
                told = type(error)(f"{error.message} It was moved to {aside}.", hint="Remove it when it is not needed.")
                say("snapshot_problem", self.record.job, {"tier": self.tier, **told.detail})
        super()._take_up()

    def shards_of_source(self) -> list[Shard]:
        """Return what is ready in memory, also what is not sealed yet: it is hashed while it is written."""
        waiting = [shards.parse(path.stem) for _shard, path in sealing.unsealed(self.source.root)]
        fresh = [shard for shard in waiting if shard and not self._sealer.is_bad(self._slot(shard))]
        return [*super().shards_of_source(), *fresh]

    def committed(self, key: str) -> dict[str, Any]:
        """Return the record of a shard in memory; nothing yet of one that is not sealed."""
        try:
            return super().committed(key)
        except RecordUnusable:
            raise
        except CopyMissing:
            return {}

    def bring(self, shard: Shard, record: dict[str, Any]) -> None:
        """Copy one shard to the SSD: from the slot where it lies, or as a file when it is none."""
        if record and "chunks" not in record:
            super().bring(shard, record)
            return
        slot = self._slot(shard)
        with direct.held(slot, self._sealer.maps) as content:
            hash_again = bool(record) and not self._sealer.is_fresh(slot)
            known = functools.cache(lambda: self._told_record(shard, record))
            put, key = self._ssd.put_from_memory, self.stored_as(shard)
            put(content, key, lambda: with_drain(known()), hash_again=hash_again)  # a drain ends when all is durable

    def _told_record(self, shard: Shard, record: dict[str, Any]) -> dict[str, Any]:
        """Return the record as it goes beside the copy, waiting for the seal if there was none yet."""
        known = record or self._sealer.record(self._slot(shard), self.source, shard.flat_key)
        if "chunks" not in known:
            raise CopyMissing(f"{self._slot(shard)} was committed as a file meanwhile; it is copied as one next.")
        whose, generation = (shard.epoch, shard.rank), int(known.get("generation") or 0)
        failed = known["failed"] if isinstance(known.get("failed"), int) else 0
        begun = generation - self._last(whose) - 1 - (failed - self._failed.get(whose, failed))
        superseded, self._failed[whose] = max(begun, 0), failed
        self._generations[whose] = max(generation, self._last(whose))
        return {**known, "superseded": superseded}

    def _slot(self, shard: Shard) -> Path:
        return self.source.data_path(shard.flat_key)

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
        self._holds: dict[str, Hold] = {}
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
        folders = {"ssd_dir": self.options.ssd_dir, "memory_dir": self.options.memory_dir}
        programs = ProgramWatch(**folders, ssd=ssd, job=record.job)
        hold = self._holds.setdefault(record.job, Hold(self.options.ssd_dir, record.job, f"node {self.options.node}"))
        return SsdLane(record, memory, ssd, self.sealer, programs, hold)


if __name__ == "__main__":
    run(SsdMover)
