"""Which shards in memory are ready and have no commit record yet? A thread of the second process sees to them.

It looks at the time of each job's folder, which changes with every slot that becomes ready, every few milliseconds;
only then are names read. A shard is sealed within its own reading time, also while the SSD is slow, full or away.
"""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any

from reliability.agent import sealing
from reliability.agent.clock import steady
from reliability.agent.lane import say
from reliability.errors import CopyMissing, TierError
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.slotmaps import SlotMaps
from reliability.trainer.folder import Shard

PAUSE_S = 0.004
RECORD_LIMIT_S = 10.0
LOOK_S = 0.5
FRESH_S = 2.0
"""For so long memory is taken to be what it was when it was hashed."""

log = logging.getLogger("stepkeeper.agent")


class Sealer:
    """Seals the shards of all jobs below a folder; each one sealed is told by a byte written to `wake`."""

    def __init__(self, memory_dir: Path, wake: int) -> None:
        self._memory_dir = memory_dir
        self._wake = wake
        self._seen: dict[str, int] = {}
        self._looked_at = 0.0
        self._bad: dict[Path, int] = {}
        self._unwritten: dict[Path, TierError] = {}
        self._sealed_at: dict[Path, float] = {}
        self._sealed = threading.Condition()
        self.maps = SlotMaps()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Seal from now on, in a thread that lives as long as the process."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="seal", daemon=True)
            self._thread.start()

    def pass_once(self) -> int:
        """Seal what is there now and return how many shards that were. Also for those who have no thread."""
        sealed = 0
        everything = steady() - self._looked_at > LOOK_S
        for job in self._jobs():
            memory = self._memory_dir / job / "mem"
            try:
                changed_at = memory.stat().st_mtime_ns
            except OSError:
                continue
            if everything or self._seen.get(job) != changed_at:
                self._seen[job] = changed_at
                sealed += self._seal_job(memory, job)
        if everything:
            self._looked_at = now = steady()
            self._sealed_at = {path: at for path, at in self._sealed_at.items() if now - at < FRESH_S}
            self.maps.prune()
        return sealed

    def is_bad(self, path: Path) -> bool:
        """Whether a file only looks like a shard, and has not changed since that was found."""
        return path in self._bad and self._bad[path] == _stamp(path)

    def record(self, path: Path, memory: DirectoryTier, key: str) -> dict[str, Any]:
        """Return the record of a shard that is being sealed, once it is.

        Raises CopyMissing when it never will be, TierError when the memory tier takes no record, as when it is full.
        """
        end = steady() + RECORD_LIMIT_S
        with self._sealed:
            while True:
                with contextlib.suppress(CopyMissing):
                    return memory.record(key)
                if (error := self._unwritten.get(path)) is not None:
                    raise error
                if self.is_bad(path) or steady() > end or not path.exists():
                    raise CopyMissing(f"{path} was not sealed.")
                if self._thread is None:
                    self.pass_once()
                self._sealed.wait(PAUSE_S)

    def is_fresh(self, path: Path) -> bool:
        """Whether this process computed the digests of a shard a moment ago."""
        at = self._sealed_at.get(path)
        return at is not None and steady() - at < FRESH_S

    def _seal_job(self, memory: Path, job: str) -> int:
        sealed = 0
        found = sealing.unsealed(memory)
        if found:
            self._tell()  # it can be written while it is hashed
        for shard, path in found:
            try:
                sealed += self._seal(path, job)
            except RecordUnusable as error:
                self._tell_once(shard, path, job, error)
            except CopyMissing:
                continue  # written over meanwhile
            except TierError as error:
                log.warning("shard not sealed: path=%s reason=%s", path, error.message)
                self._unwritten[path] = error
        self._unwritten = {path: error for path, error in self._unwritten.items() if path.exists()}
        return sealed

    def _seal(self, path: Path, job: str) -> bool:
        if self.is_bad(path) or not sealing.seal(path, job=job, maps=self.maps):
            return False
        self._bad.pop(path, None)
        self._unwritten.pop(path, None)
        self._sealed_at[path] = steady()
        self._tell()
        return True

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"s")
        with self._sealed:
            self._sealed.notify_all()

    def _tell_once(self, shard: Shard, path: Path, job: str, error: RecordUnusable) -> None:
        self._bad[path] = _stamp(path)
        where = {"snapshot_epoch": shard.epoch, "step": shard.step, "rank": shard.rank, "tier": "memory"}
        say("snapshot_problem", job, {**where, **error.detail})

    def _jobs(self) -> list[str]:
        try:
            with os.scandir(self._memory_dir) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.pass_once()
            except Exception:
                log.exception("sealing failed, tried again")  # boundary: whatever a program left there
            pause.wait(PAUSE_S)


def _stamp(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
