"""Which agent of this machine works for a job of this name here? Two installations may share a machine and a folder.

Names of jobs are unique in one installation only. Two agents that were given the same folder would write one job's
snapshots over the other's and restore the wrong ones. The first holds a lock beside the job's folder, which ends with
its process; any other is refused, and leaves a note, so that both are told.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from reliability.errors import TierConflict
from reliability.tiers import copying, opening

WAIT_S = 1.5
"""An earlier life of the same agent may be about to end."""
PAUSE_S = 0.05
NOTE_BYTES = 4096
_HINT = "Give the jobs different names, or each agent a --memory-dir and an --ssd-dir of its own."


class Hold:
    """The right to work for a job in a folder of this machine. `who`: what the other one is told of this one."""

    def __init__(self, folder: Path, job: str, who: str) -> None:
        self._place = folder / job
        self._lock = folder / f".{job}.lock"
        self._note = folder / f".{job}.asked"
        self._who = who
        self._handle: int | None = None
        self._refused_at: float | None = None

    @property
    def held(self) -> bool:
        """Return whether it was taken."""
        return self._handle is not None

    def take_at_once(self) -> bool:
        """Take it without waiting; False while it is refused for less than WAIT_S.

        Raises TierConflict when it is refused for longer: then a note is left. Raises TierFull, TierUnreachable.
        """
        now = time.monotonic()
        since = now if self._refused_at is None else self._refused_at
        patient = now - since < WAIT_S
        try:
            self.take(0, quietly=patient)
        except TierConflict:
            self._refused_at = since
            if patient:
                return False
            raise
        self._refused_at = None
        return True

    def take(self, limit_s: float = WAIT_S, *, quietly: bool = False) -> None:
        """Take it, or leave a note for whoever has it. Raises TierConflict, TierFull, TierUnreachable."""
        if self._handle is not None:
            return
        with copying.tier_errors(self._lock):
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(handle, limit_s):
                if not quietly:
                    self._leave_note()
                raise TierConflict(
                    f"{self._place} is in use by another agent of this machine ({_said(handle)}).", hint=_HINT
                )
            with copying.tier_errors(self._lock):
                os.ftruncate(handle, 0)
                os.pwrite(handle, self._who.encode()[:NOTE_BYTES], 0)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def asked(self) -> TierConflict | None:
        """Return what is to be told when another agent wanted it since the last call."""
        if self._handle is None or not self._note.exists():
            return None
        try:
            who = opening.small(self._note, NOTE_BYTES).decode(errors="replace")
            self._note.unlink()
        except OSError:
            return None
        return TierConflict(
            f"Another agent of this machine ({who}) was to work in {self._place} too and was refused.", hint=_HINT
        )

    def release(self) -> None:
        """Give it up."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _leave_note(self) -> None:
        with contextlib.suppress(OSError):
            opening.replace(self._note, self._who.encode()[:NOTE_BYTES], mode=0o600)


def _locked(handle: int, limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_S)


def _said(handle: int) -> str:
    return os.pread(handle, NOTE_BYTES, 0).decode(errors="replace") or "it does not say which"
