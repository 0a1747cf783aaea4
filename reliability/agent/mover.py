"""Copies snapshots one tier further: `python -m reliability.agent.mover memory-to-ssd|ssd-to-storage ...`.

These are the second and the third process of a snapshot's way (the first is in the trainer). Each is a process of its
own, started by the agent and ended with it, and needs neither server nor broker. What is to be copied is seen from
commit records alone; a line on standard input only makes it look at once. Every copy made, and every trouble, is one
JSON line on standard output; after a start all copies found are told again, so that none is lost between two lives.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.agent import floors, jobrecord
from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.parent import end_with_parent
from reliability.agent.retention import abandoned, removable
from reliability.domain.snapshots import Tier
from reliability.errors import CopyMissing, DigestMismatch, ReliabilityError, TierError
from reliability.tiers import shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard

LOOK_S = 0.5
KEEP_ON_SSD = 4
KEEP_ON_STORAGE = 8
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
REPEAT_PROBLEM_S = 30.0
TO_SSD = "memory-to-ssd"
TO_STORAGE = "ssd-to-storage"


class Lane:
    """One job's way from one tier to the next on this node."""

    def __init__(self, direction: str, record: JobRecord, source: DirectoryTier, target: DirectoryTier) -> None:
        self.source = source
        self.target = target
        self.record = record
        self.floors = Floors()
        self.settled = False
        self._to_storage = direction == TO_STORAGE
        self.tier = Tier.STORAGE if self._to_storage else Tier.SSD
        self._keep = KEEP_ON_STORAGE if self._to_storage else KEEP_ON_SSD
        self._told: set[Shard] = set()
        self._bad: dict[Shard, tuple[int, int]] = {}
        self._problem = ("", 0.0)
        self._wait_s = FIRST_WAIT_S
        self._not_before = 0.0
        self._taken_up = False
        self._tidied: tuple[int | None, int] = (None, 0)

    def run(self, now: float) -> bool:
        """Copy what is newest, tell it, tidy up; return whether a copy was made, so that there may be more to do."""
        if self.settled or now < self._not_before:
            return False
        try:
            copied = self._run()
            self.settled = self.record.released and not copied
            return copied
        except ReliabilityError as error:
            self._trouble(error, now)
            self._not_before = now + self._wait_s
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            return False

    def _run(self) -> bool:
        if not self._taken_up:
            self._take_up()
        copied = self._copy_newest()
        state = (self._floor(), len(self.record.starts))
        if copied or state != self._tidied:
            self._tidy()
            self._tidied = state
        if not copied:
            self._wait_s, self._problem = FIRST_WAIT_S, ("", 0.0)
        return copied

    def _take_up(self) -> None:
        """After a start: sweep what an earlier life left unfinished and tell all copies that are there."""
        if self.target.root.is_dir():
            self.target.sweep()
        for shard in sorted(self._shards_of_target()):
            try:
                self._tell_copy(shard)
            except RecordUnusable as error:
                self._distrust(self.target, shard, error)
            except CopyMissing:
                continue
        self._taken_up = True

    def follow(self, record: JobRecord, safe: Floors) -> None:
        """Take over what the node now knows of the job."""
        if record != self.record:
            self.record, self.settled = record, False
        self.floors = safe

    def _copy_newest(self) -> bool:
        """Copy the newest shard that the target lacks. The target is asked for single keys only: it may be far away."""
        starts = self.record.epoch_starts()
        for shard in self._wanted(self._shards(self.source)):
            if shard in self._told or abandoned(shard, starts) or self._known_bad(shard):
                continue
            try:
                copied = self._copy(shard)
            except (DigestMismatch, RecordUnusable) as error:
                self._distrust(self.source, shard, error)  # the others are not to blame for it
                continue
            if copied:
                self._tell_copy(shard)
                return True
        return False

    def _wanted(self, found: Iterable[Shard]) -> Iterator[Shard]:
        """Yield the newest shards of each rank, newest first over all ranks."""
        taken: dict[int, int] = {}
        for shard in sorted(found, reverse=True):
            taken[shard.rank] = taken.get(shard.rank, 0) + 1
            if taken[shard.rank] <= self._keep:
                yield shard

    def _copy(self, shard: Shard) -> bool:
        key = self._key(self.source, shard)
        try:
            record = self.source.record(key)
            self.target.put(
                self.source.data_path(key),
                self._key(self.target, shard),
                digest=record["digest"],
                record=lambda: {**record, "drain_s": _since_stall(record)},
            )
        except RecordUnusable:
            raise
        except CopyMissing:
            return False  # it was removed meanwhile: a newer one has taken its place
        except DigestMismatch:
            if self._still_committed(key, record["digest"]):
                raise
            return False
        return True

    def _still_committed(self, key: str, digest: str) -> bool:
        try:
            return bool(self.source.record(key).get("digest") == digest)
        except TierError:
            return False

    def _tell_copy(self, shard: Shard) -> None:
        key = self._key(self.target, shard)
        record = self.target.record(key)
        body = {
            **_where(shard),
            "tier": self.tier,
            "path": str(self.target.data_path(key)),
            "size_bytes": record["size_bytes"],
            "digest": record["digest"],
            "stall_s": record.get("stall_s"),
            "drain_s": record.get("drain_s"),
        }
        _say("snapshot_copy", self.record.job, body)
        self._told.add(shard)

    def _known_bad(self, shard: Shard) -> bool:
        return shard in self._bad and self._bad[shard] == self._stamp(self.source, shard)

    def _stamp(self, tier: DirectoryTier, shard: Shard) -> tuple[int, int]:
        """Tell one file of a name from another: a damaged shard may be replaced by a good one."""
        try:
            found = tier.data_path(self._key(tier, shard)).lstat()
        except OSError:
            return (0, 0)
        return found.st_ino, found.st_mtime_ns

    def _distrust(self, tier: DirectoryTier, shard: Shard, error: ReliabilityError) -> None:
        """Tell once that a shard is no good, and pass it over from now on."""
        detail = {"code": error.code, "message": error.message, "hint": error.hint}
        _say("snapshot_problem", self.record.job, {**_where(shard), "tier": self.tier, **detail})
        if tier is self.source:
            self._bad[shard] = self._stamp(tier, shard)

    def _trouble(self, error: ReliabilityError, now: float) -> None:
        """Tell a trouble when it begins and then now and again while it lasts."""
        code, since = self._problem
        if error.code == code and now - since < REPEAT_PROBLEM_S:
            return
        waiting = max(self._shards_quietly(), default=None)
        where = _where(waiting) if waiting else {"snapshot_epoch": None, "step": None, "rank": None}
        detail = {"code": error.code, "message": error.message, "hint": error.hint}
        _say("snapshot_problem", self.record.job, {**where, "tier": self.tier, **detail})
        self._problem = (error.code, now)

    def _floor(self) -> int | None:
        """Return the step that is safe. What the server said while an older attempt was the newest does not count."""
        if self.floors.epoch != self.record.epoch:
            return None
        return self.floors.storage if self._to_storage else self.floors.ssd

    def _tidy(self) -> None:
        found, starts = self._shards_of_target(), self.record.epoch_starts()
        for shard in removable(found, starts=starts, keep=self._keep, floor=self._floor(), tier=self.tier):
            self.target.delete(self._key(self.target, shard))

    def _shards(self, tier: DirectoryTier) -> list[Shard]:
        return [shard for shard in map(shards.parse, tier.keys("")) if shard is not None]

    def _shards_of_target(self) -> list[Shard]:
        """Return what the target holds of this node's ranks: others' shards on storage are not ours to touch."""
        ranks = {shard.rank for shard in self._shards(self.source)} | set(self.record.ranks)
        return [shard for shard in self._shards(self.target) if not self._to_storage or shard.rank in ranks]

    def _shards_quietly(self) -> list[Shard]:
        try:
            return self._shards(self.source)
        except TierError:
            return []

    def _key(self, tier: DirectoryTier, shard: Shard) -> str:
        return shard.stored_key if self._to_storage and tier is self.target else shard.flat_key


def _since_stall(record: Mapping[str, Any]) -> float | None:
    """Return the seconds from the end of the save's stall until now; None for a shard that nobody saw being saved."""
    taken_at, stall_s = record.get("taken_at"), record.get("stall_s")
    if not taken_at or stall_s is None:
        return None
    return round(max(time.time() - float(taken_at) - float(stall_s), 0.0), 4)


def _where(shard: Shard) -> dict[str, Any]:
    return {"snapshot_epoch": shard.epoch, "step": shard.step, "rank": shard.rank}


def _say(kind: str, job: str, body: dict[str, Any]) -> None:
    line = json.dumps({"kind": kind, "job": job, "body": body}) + "\n"
    try:
        os.write(sys.stdout.fileno(), line.encode())
    except BrokenPipeError:
        raise SystemExit("The agent no longer listens.") from None


class Mover:
    """The lanes of all jobs in one direction."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._lanes: dict[str, Lane] = {}
        self._seen: dict[str, tuple[int, int]] = {}

    def pass_once(self) -> bool:
        """Go through all jobs once; return whether anything was copied."""
        self._take_up_records()
        now = time.monotonic()
        copied = [lane.run(now) for lane in self._lanes.values()]  # every lane has its turn
        return any(copied)

    def _take_up_records(self) -> None:
        """Read the records when one of them changed: jobs that are over only cost a look at the folder."""
        seen = _stamps(self._options.jobs_dir)
        if seen == self._seen:
            return
        found = {record.job: record for record in jobrecord.load_all(self._options.jobs_dir)}
        for record in found.values():
            self._take_up(record)
        for job in self._lanes.keys() - found.keys():
            del self._lanes[job]
        self._seen = seen

    def _take_up(self, record: JobRecord) -> None:
        if self._options.direction == TO_STORAGE and not record.storage_dir:
            return
        lane = self._lanes.get(record.job)
        if lane is None or lane.record.storage_dir != record.storage_dir:
            lane = self._lanes[record.job] = self._lane(record)
        lane.follow(record, floors.load(self._options.jobs_dir, record.job))

    def _lane(self, record: JobRecord) -> Lane:
        ssd = DirectoryTier(self._options.ssd_dir / record.job, owner=self._options.node, private=True)
        if self._options.direction == TO_SSD:
            return Lane(TO_SSD, record, DirectoryTier(self._options.memory_dir / record.job / "mem"), ssd)
        storage = DirectoryTier(Path(record.storage_dir) / record.job, owner=self._options.node)
        return Lane(TO_STORAGE, record, ssd, storage)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what tells one version of each file in a folder from the next: files are replaced, never rewritten."""
    with os.scandir(folder) as entries:
        found = {}
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat(follow_symlinks=False)
                found[entry.name] = (stat.st_ino, stat.st_mtime_ns)
        return found


def main(argv: Sequence[str] | None = None) -> None:
    """Copy until the agent is gone."""
    options = _parser().parse_args(argv)
    end_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends its movers itself
    mover = Mover(options)
    while True:
        if mover.pass_once():
            continue
        readable, _, _ = select.select([sys.stdin], [], [], LOOK_S)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reliability.agent.mover")
    parser.add_argument("direction", choices=(TO_SSD, TO_STORAGE))
    parser.add_argument("--node", required=True)
    parser.add_argument("--parent", type=int, required=True, help="process id of the agent")
    for folder in ("jobs-dir", "memory-dir", "ssd-dir"):
        parser.add_argument(f"--{folder}", type=Path, required=True)
    return parser


if __name__ == "__main__":
    main()
