"""What have the ranks of a job put down since the last look: steps, ends, snapshots?

Each is reported once: the report is kept on disk first and marked as made afterwards, so that a crash or a full disk
in between makes it twice, which the server can take, and never not at all.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import heads, rankprocess, sealing, watched
from reliability.agent.clock import steady
from reliability.agent.folder import JobFolder
from reliability.agent.jobrecord import JobRecord
from reliability.agent.movement import Movement
from reliability.agent.progress import Progress
from reliability.agent.standstill import Standstill
from reliability.agent.watched import Watched
from reliability.errors import CopyMissing, TierError
from reliability.tiers import records, shards
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard

log = logging.getLogger("stepkeeper.agent")

UNKNOWN_EXIT = 255
TAIL_CHARACTERS = 8000
STILL_S = 3.0
"""Of a rank that stands still for longer it is looked in which state its process is."""

Report = Callable[[str, Mapping[str, Any]], None]


class RankFiles:
    """Reads the files of a job's local ranks. The caller guards it with the job's lock."""

    def __init__(self, folder: JobFolder, record: JobRecord, report: Report) -> None:
        self._folder = folder
        self._record = record
        self._report = report
        self._steps: dict[int, tuple[int, float]] = {}
        self._movement = Movement()
        self._standstill = Standstill(report)
        self._commits: set[str] = set()
        self._changed = False
        self._too_large_in = 0
        self.begin()

    def begin(self) -> None:
        """Forget the steps of an older attempt: a new one starts now."""
        self._steps.clear()
        self._movement.begin()
        self.stepped = False
        self.last_step_at = steady()

    def look(self, restored: Collection[str] = ()) -> bool:
        """Report what is new; return whether the record changed and has to be kept.

        `restored`: keys of shards whose digest a restore compared just now. They are told anew, and that they were.
        """
        self._seal_what_is_left()
        self._look_at_commits(restored)  # before the ends: whoever hears of an end asks what can be restored
        if self._record.training:
            for rank in self._record.ranks:
                self._look_at_progress(rank)
            self._look_at_exits()
            self._look_at_standstill()
        changed, self._changed = self._changed, False
        return changed

    def exits(self) -> dict[int, dict[str, Any]]:
        """Return the ranks of the started attempt that ended, and how."""
        return self._folder.exits(self._record.started_epoch)

    def progress(self, rank: int) -> Progress | None:
        """Return how far a rank is in the started attempt; what an older one left does not count."""
        found = self._folder.progress(rank)
        return found if found and found.epoch == self._record.started_epoch else None

    def watched(self, rank: int) -> Watched | None:
        """Return what a rank tells beyond its step in the started attempt; None from an older client."""
        found = watched.read(self._folder.progress_path(rank))
        return found if found and found.epoch == self._record.started_epoch else None

    def last_step(self, rank: int) -> int | None:
        """Return the last step a rank finished in the started attempt, or None."""
        found = self.progress(rank)
        return found.step if found and found.step > found.restored_step else None

    def longest_step_s(self) -> float:
        """Return the longest recent step of a local rank, 0 when unknown."""
        found = (self.progress(rank) for rank in self._record.ranks)
        return max((reading.step_s for reading in found if reading and math.isfinite(reading.step_s)), default=0.0)

    def ranks(self) -> list[dict[str, Any]]:
        """Return the ranks' part of a heartbeat."""
        ended = self.exits()
        return [self._status(rank, ended=rank in ended) for rank in self._record.ranks]

    def _status(self, rank: int, *, ended: bool, closely: bool = True) -> dict[str, Any]:
        reading = self.progress(rank)
        since = self._steps.get(rank, (0, self.last_step_at))[1]
        known = reading is not None and reading.step > reading.restored_step
        more = self.watched(rank)
        own = (more.phase if more else "") or ("training" if known else "starting")
        phase = "ended" if ended else own
        return {
            "rank": rank,
            "step": reading.step if reading and known else None,
            "step_s": _finite(reading.step_s) if reading else None,
            "loss": _finite(reading.loss) if reading else None,
            "phase": phase,
            "progress_age_s": round(steady() - since, 3),
            "plan_version": reading.plan_version if reading else 0,
            "watch": {} if ended else self._watch(rank, more, closely=closely),
        }

    def _watch(self, rank: int, more: Watched | None, *, closely: bool) -> dict[str, Any]:
        """Return what else is told of a rank that has not ended; the state of its process once it stands still."""
        still_s = self._movement.still_s(rank)
        alive = self._folder.root / "run" / f"alive-{rank}"
        return {
            **(more.told() if more else {}),
            "moved_age_s": round(still_s, 3),
            "state": rankprocess.state_of(alive) if closely and still_s > STILL_S else "",
            "output_age_s": self._movement.quiet_s(rank),
            "output_longest_s": self._movement.longest_quiet_s(rank),
        }

    def _look_at_progress(self, rank: int) -> None:
        reading = self.progress(rank)
        self._movement.look(rank, reading, self.watched(rank), self._folder.log_path(self._record.epoch, rank))
        if reading is None or reading.step <= reading.restored_step:
            return
        if self._steps.get(rank, (None, 0.0))[0] != reading.step:
            self.last_step_at = steady()
            self._steps[rank] = (reading.step, self.last_step_at)
            self.stepped = True
        if rank in self._record.first_steps_reported:
            return
        first = {"rank": rank, "step": reading.step, "restored_step": reading.restored_step}
        asked = (self._folder.skips_asked(rank) or {}).get("epoch") == self._record.started_epoch
        self._report("first_step", {**first, "plan_version": reading.plan_version, "skips_read": asked})
        self._record.first_steps_reported.append(rank)
        self._changed = True

    def _look_at_standstill(self) -> None:
        ended = self.exits()
        live = [rank for rank in self._record.ranks if rank not in ended]
        if any(self._movement.still_s(rank) > STILL_S for rank in live):
            self._standstill.look([self._status(rank, ended=False, closely=False) for rank in live])

    def _look_at_exits(self) -> None:
        reasons: list[str] = []
        for rank, ended in sorted(self.exits().items()):
            if rank in self._record.exits_reported or rank not in self._record.ranks:
                continue
            how = {
                "exit_code": _whole(ended.get("exit_code"), -255, 2**31 - 1, UNKNOWN_EXIT),
                "signal": _whole(ended.get("signal"), 0, 255, None),
                "tail": str(ended.get("tail") or "")[-TAIL_CHARACTERS:],
            }
            self._report("rank_exit", {"rank": rank, **how, "last_step": self.last_step(rank)})
            self._record.exits_reported.append(rank)
            if how["exit_code"] == 0:
                self._record.ended_well.append(rank)
            self._changed = True
            reasons += filter(None, [str(ended.get("reason") or "")[:TAIL_CHARACTERS]])
        if reasons:  # the launcher ended them because the lease ran out, as the agent itself would have
            self._report("finding", {"code": "agent-silent", "rank": None, "evidence": reasons[0], "count": 1})

    def _seal_what_is_left(self) -> None:
        """Once a rank has ended nothing is left out that it still got ready: its newest state is what is wanted."""
        if self._record.training and not self.exits():
            return
        sealing.seal_all(self._folder.memory.root, job=self._record.job)

    def _look_at_commits(self, restored: Collection[str]) -> None:
        """Report new commit records of the memory tier; forget those that the trainer has removed."""
        try:
            present = set(self._folder.memory.keys(""))
        except TierError:
            return
        wanted = (present - self._commits) | (present & set(restored))
        named = {key: shard for key in wanted if (shard := shards.parse(key)) is not None}
        for key, shard in sorted(named.items(), key=lambda item: item[1]):
            if self._tell_commit(key, shard, restored=key in restored):
                self._commits.add(key)
        self._commits &= present
        heads.sweep(self._folder.memory.root)

    def _tell_commit(self, key: str, shard: Shard, *, restored: bool) -> bool:
        """Report one shard, or what is wrong with it; return whether that settles it."""
        where = {"snapshot_epoch": shard.epoch, "step": shard.step, "rank": shard.rank, "tier": "memory"}
        path = self._folder.memory.data_path(key)
        try:
            record = records.read(path.with_suffix(".json"))
        except RecordUnusable as error:
            self._report("snapshot_problem", {**where, **error.detail})
            return True
        except CopyMissing:
            return False  # the trainer removed it after the folder was listed
        except TierError as error:
            log.warning("commit record not read: path=%s reason=%s", path, error.message)
            return False
        copy = {"path": str(path), "size_bytes": record["size_bytes"], "digest": record["digest"]}
        parts = self._parts(path, record, where)
        if restored:
            copy["restored"] = True
        self._report("snapshot_copy", {**where, **copy, "stall_s": record.get("stall_s"), "drain_s": None, **parts})
        heads.forget(path)
        return True

    def _parts(self, path: Path, record: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is told of a shard's parts, with its head, the only copy of which may otherwise go with the node.

        A head that is too large to travel is told of once an attempt.
        """
        parts = record.get("parts")
        if not isinstance(parts, dict):
            return {}
        if heads.is_too_large(path, parts) and self._too_large_in != self._record.epoch:
            self._too_large_in = self._record.epoch
            self._report("snapshot_problem", {**where, **heads.TOO_LARGE, "message": heads.too_large(parts)})
        return {"parts": parts, "head": heads.told(path)}


def _whole(value: object, least: int, most: int, otherwise: int | None) -> int | None:
    """The launcher's word may have been overwritten by the program: that it ended is told all the same."""
    return value if isinstance(value, int) and least <= value <= most else otherwise


def _finite(value: float) -> float | None:
    """JSON knows no NaN: what is not known is null."""
    return value if math.isfinite(value) else None


def snapshot_problem(hint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report about a snapshot that a trainer says it could not take; nothing in a hint is trusted."""
    tier = "ssd" if hint.get("tier") == "ssd" else "memory"  # there lies what a program writes itself
    body: dict[str, Any] = {"tier": tier, "code": str(hint.get("code") or "tier")[:64]}
    for key in ("snapshot_epoch", "step", "rank"):
        value = hint.get(key)
        body[key] = value if isinstance(value, int) and value >= 0 else None
    for key in ("message", "hint"):
        body[key] = str(hint.get(key) or "")[:2000]
    return body
