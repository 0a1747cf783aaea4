"""How does one job's snapshots get from one tier to the next? What both movers have in common.

A lane copies what is newest, tells it, and removes what no longer counts. What is to be copied is seen from commit
records alone; after a start all copies found are told again, so that none is lost between two lives. A save comes
before removals, unless it found the tier full; a tier that removes slowly or not at all still gets every newest one.
"""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Set
from typing import Any, ClassVar

from reliability.agent.clock import steady
from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.retention import abandoned, named, removable
from reliability.domain.snapshots import Tier
from reliability.errors import CopyMissing, DigestMismatch, ReliabilityError, TierError, TierFull
from reliability.ports import TierStore
from reliability.tiers import shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard
from reliability.trainer import moments

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
REPEAT_PROBLEM_S = 30.0
REPEAT_LASTING_S = 3600.0
"""A trouble that lasts is told when it begins, and after so long once more."""
REMOVE_S = 1.0
"""So long a lane removes at a time, and then looks for a new save first."""


class Lane(ABC):
    """One job's way from one tier to the next on this node."""

    tier: ClassVar[Tier]
    keep: ClassVar[int]

    def __init__(self, record: JobRecord, source: DirectoryTier, target: TierStore) -> None:
        self.source = source
        self.target = target
        self.record = record
        self.floors = Floors()
        self.settled = False
        self._told: set[Shard] = set()
        self._bad: dict[Shard, tuple[int, int]] = {}
        self._problem = ("", 0.0)
        self.at: Shard | None = None
        self._wait_s = FIRST_WAIT_S
        self._not_before = 0.0
        self._taken_up = False
        self._tidied: tuple[int | None, int, object] = (None, 0, None)
        self._tried: dict[Shard, float] = {}
        self._no_removal_before = 0.0
        self._told_refusal_at = -REPEAT_PROBLEM_S

    def run(self, now: float) -> bool:
        """Copy what is newest, tell it, tidy up; return whether there may be more to do at once."""
        if self.settled or now < self._not_before:
            return False
        self.at = None
        try:
            more = self._run()
            self.settled = self.record.released and not more
            return more
        except ReliabilityError as error:
            self._trouble(error, now)
            self._not_before = now + self._wait_s
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            return False

    def _run(self) -> bool:
        if not self._taken_up:
            self._take_up()
        self._told |= set(self._doomed())  # what shall go is not brought here once more
        copied = self._copy_making_room()
        more = self._remove_named()
        state = (self._floor(), len(self.record.starts), self.floors.may_go)
        if copied or state != self._tidied:
            self._tidy()
            self._tidied = state
        if not copied:
            self._wait_s, self._problem = FIRST_WAIT_S, ("", 0.0)
        return copied or more

    def _copy_making_room(self) -> bool:
        """Copy the newest; where the tier takes nothing, what the server named goes first."""
        try:
            return self._copy_newest()
        except TierError as error:
            if not self._remove_named():
                if isinstance(error, TierFull):
                    self._tidy()
                raise
        return self._copy_making_room()

    def _take_up(self) -> None:
        """After a start: sweep what an earlier life left unfinished and tell all copies that are there."""
        self.target.sweep([self.stored_as(shard) for shard in self._shards(self.source)])
        for shard in sorted(self._shards_of_target()):
            try:
                self._tell_copy(shard)
            except RecordUnusable as error:
                self._distrust(self.target, shard, error)
            except CopyMissing:
                continue
        self._taken_up = True

    def let_go(self) -> None:
        """Give up what others may want: nothing is to be done until more is known."""
        self.settled = True

    def follow(self, record: JobRecord, safe: Floors) -> None:
        """Take over what the node now knows of the job."""
        if record != self.record or safe != self.floors:
            self.record, self.settled = record, False
        self.floors = safe

    def _copy_newest(self) -> bool:
        """Copy the newest shard that the target lacks. The target is asked for single keys only: it may be far away."""
        starts = self.record.epoch_starts()
        for shard in self._wanted(self.shards_of_source()):
            if shard in self._told or abandoned(shard, starts) or self._known_bad(shard):
                continue
            self.at = shard
            try:
                copied = self._copy(shard)
            except (DigestMismatch, RecordUnusable) as error:
                self._distrust(self.source, shard, error)  # the others are not to blame for it
                continue
            if copied:
                self._tell_copy(shard)
                return True
        self.at = None
        return False

    def _wanted(self, found: Iterable[Shard]) -> Iterator[Shard]:
        """Yield the newest shards of each rank, newest first over all ranks."""
        taken: dict[int, int] = {}
        for shard in sorted(found, reverse=True):
            taken[shard.rank] = taken.get(shard.rank, 0) + 1
            if taken[shard.rank] <= self.keep:
                yield shard

    def _copy(self, shard: Shard) -> bool:
        key = self._key(self.source, shard)
        try:
            record = self.committed(key)
            self.bring(shard, record)
        except RecordUnusable:
            raise
        except CopyMissing:
            return False  # it was removed meanwhile: a newer one has taken its place
        except DigestMismatch:
            if self._still_committed(key, record.get("digest")):
                raise
            return False
        return True

    def bring(self, shard: Shard, record: dict[str, Any]) -> None:
        """Copy one shard to the target, verified. Raises TierError."""
        source = self.source.data_path(shard.flat_key)
        self.target.put(source, self.stored_as(shard), digest=record["digest"], record=lambda: with_drain(record))

    def shards_of_source(self) -> list[Shard]:
        """Return what there is to copy."""
        return self._shards(self.source)

    def committed(self, key: str) -> dict[str, Any]:
        """Return the commit record of a shard of the source. Raises CopyMissing, RecordUnusable."""
        return self.source.record(key)

    def _still_committed(self, key: str, digest: object) -> bool:
        try:
            return bool(self.source.record(key).get("digest") == digest)
        except TierError:
            return False

    def _tell_copy(self, shard: Shard) -> None:
        key = self._key(self.target, shard)
        record = self.target.record(key)
        body = {
            **where_is(shard),
            "tier": self.tier,
            "path": self.target.place(key),
            "size_bytes": record["size_bytes"],
            "digest": record["digest"],
            "stall_s": record.get("stall_s"),
            "drain_s": record.get("drain_s"),
            **self.beside(record),
        }
        say("snapshot_copy", self.record.job, body)
        self._told.add(shard)

    def beside(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return what else is told of a copy."""
        return {}

    def _known_bad(self, shard: Shard) -> bool:
        return shard in self._bad and self._bad[shard] == self._stamp(shard)

    def _stamp(self, shard: Shard) -> tuple[int, int]:
        """Tell one file of a name from another: a damaged shard may be replaced by a good one."""
        try:
            found = self.source.data_path(shard.flat_key).lstat()
        except OSError:
            return (0, 0)
        return found.st_ino, found.st_mtime_ns

    def _distrust(self, tier: TierStore, shard: Shard, error: ReliabilityError) -> None:
        """Tell once that a shard is no good, and pass it over from now on."""
        say("snapshot_problem", self.record.job, {**where_is(shard), "tier": self.tier, **error.detail})
        if tier is self.source:
            self._bad[shard] = self._stamp(shard)

    def _trouble(self, error: ReliabilityError, now: float) -> None:
        """Tell a trouble when it begins, naming the shard that it befell, and seldom again while it lasts."""
        code, since = self._problem
        if error.code == code and now - since < REPEAT_LASTING_S:
            return
        say("snapshot_problem", self.record.job, {**where_is(self.at), "tier": self.tier, **error.detail})
        self._problem = (error.code, now)

    def _floor(self) -> int | None:
        """Return the step that is safe. What the server said while an older attempt was the newest does not count."""
        return self.safe_step(self.floors) if self.floors.epoch == self.record.epoch else None

    @abstractmethod
    def safe_step(self, safe: Floors) -> int | None:
        """Return the step at or above which the target loses nothing, by what the server last said."""

    @abstractmethod
    def stored_as(self, shard: Shard) -> str:
        """Return the key of a shard on the target."""

    @abstractmethod
    def is_own(self, shard: Shard, ranks: Set[int]) -> bool:
        """Return whether a shard on the target is this node's to tell and to remove, `ranks` being those it runs."""

    def _tidy(self) -> None:
        if self.floors.may_go is not None:
            return
        found, starts = self._shards_of_target(), self.record.epoch_starts()
        for shard in removable(found, starts=starts, keep=self.keep, floor=self._floor(), tier=self.tier):
            self.target.delete(self._key(self.target, shard))

    def _remove_named(self) -> bool:
        """Remove what the server named, each record before its data, and tell it; what is gone already is told too.

        Not at once again while it is named: an answer that crosses the report names it once more. What the tier refuses
        is told as a trouble and waits longest for its next turn. Returns whether something went: there may be more.
        """
        began, went = steady(), False
        doomed = self._doomed()
        self._tried = {each: at for each, at in self._tried.items() if began - at < REPEAT_PROBLEM_S or each in doomed}
        tried = self._tried
        due = [shard for shard in doomed if shard not in tried or began - tried[shard] >= REPEAT_PROBLEM_S]
        if began < self._no_removal_before:
            return False
        for shard in sorted(due, key=lambda shard: tried.get(shard, 0.0)):
            tried[shard] = steady()
            if not self._remove(shard):
                break
            went = True
            if steady() - began >= REMOVE_S:
                break
        return went

    def _doomed(self) -> dict[Shard, None]:
        return dict.fromkeys(named(self.floors, self.tier, epoch=self.record.epoch, now=steady()))

    def _remove(self, shard: Shard) -> bool:
        try:
            self.target.delete(self.stored_as(shard))
        except TierError as error:
            now = steady()
            self._no_removal_before = now + LONGEST_WAIT_S
            if now - self._told_refusal_at >= REPEAT_PROBLEM_S:
                self._told_refusal_at = now
                detail = {**error.detail, "message": f"A copy that shall go cannot be removed. {error.message}"}
                say("snapshot_problem", self.record.job, {**where_is(None), "tier": self.tier, **detail})
            return False
        say("snapshot_removed", self.record.job, {**where_is(shard), "tier": self.tier})
        return True

    def _shards(self, tier: TierStore) -> list[Shard]:
        return [shard for shard in map(shards.parse, tier.keys("")) if shard is not None]

    def _shards_of_target(self) -> list[Shard]:
        """Return what the target holds of this node's ranks."""
        ranks = {shard.rank for shard in self._shards(self.source)} | set(self.record.ranks)
        return [shard for shard in self._shards(self.target) if self.is_own(shard, ranks)]

    def _key(self, tier: TierStore, shard: Shard) -> str:
        return self.stored_as(shard) if tier is self.target else shard.flat_key


def with_drain(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the seconds from the end of the save's stall until now, the copy being durable.

    By the clock that nobody sets, where the record has a moment of it. None for a shard that nobody saw being saved, as
    one that was restored, or when the machine was started anew meanwhile.
    """
    taken_at, stall_s = record.get("taken_at"), record.get("stall_s")
    if not taken_at or stall_s is None:
        return {**record, "drain_s": None}
    passed_s = moments.since(record["moment"]) if record.get("moment") else time.time() - float(taken_at)
    if passed_s is None:
        return {**record, "drain_s": None}
    return {**record, "drain_s": round(max(passed_s - float(stall_s), 0.0), 4)}


def where_is(shard: Shard | None) -> dict[str, Any]:
    """Return a shard as reports name it, or that it is none."""
    if shard is None:
        return {"snapshot_epoch": None, "step": None, "rank": None}
    return {"snapshot_epoch": shard.epoch, "step": shard.step, "rank": shard.rank}


def say(kind: str, job: str, body: dict[str, Any]) -> None:
    """Tell the agent one thing. Ends the process when the agent no longer listens."""
    line = json.dumps({"kind": kind, "job": job, "body": body}) + "\n"
    try:
        os.write(sys.stdout.fileno(), line.encode())
    except BrokenPipeError:
        raise SystemExit("The agent no longer listens.") from None
