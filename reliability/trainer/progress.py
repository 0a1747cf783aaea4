"""How does a rank tell how far it is, at the price of a few memory writes a step?

A 64-byte file is mapped into memory. Whoever reads it takes it twice: `seq` is odd while the record changes, and
a reader that saw the same even `seq` before and after has a whole record. Each attempt makes a new file, so an
older attempt that still hangs about writes into a file nobody reads. Behind it lies what watching.py tells.
"""

import math
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from .watching import AT, SIZE, WatchRecord

_RECORD = struct.Struct("<QqqdddqQ")
_SEQ = struct.Struct("<Q")
_BODY = struct.Struct("<qqdddqQ")
_READ_ATTEMPTS = 200


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a rank last reported. `loss` is NaN when unknown; `wall` is a Unix time; `step_s` is seconds a step.

    `step_s` is without the rank's own saves and announced phases. It does hold what a rank waits in its next step for
    others that save longer.
    """

    epoch: int
    step: int
    loss: float
    wall: float
    step_s: float
    restored_step: int
    plan_version: int


class ProgressRecord:
    """The writer's side: one mapped file."""

    def __init__(self, path: Path) -> None:
        """Make the file anew. Raises OSError; the room is taken here, so that a later write cannot fail."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}.part")
        with fresh.open("w+b", buffering=0) as file:
            file.write(bytes(AT + SIZE))
            self._map = mmap.mmap(file.fileno(), AT + SIZE)
        fresh.replace(path)
        self._seq = 0
        self.watched = WatchRecord(self._map)

    def write(self, progress: Progress) -> None:
        """Publish a record. The odd `seq` differs from the even one before it in its lowest byte only."""
        _SEQ.pack_into(self._map, 0, self._seq + 1)
        _BODY.pack_into(
            self._map,
            _SEQ.size,
            progress.epoch,
            progress.step,
            progress.loss,
            progress.wall,
            progress.step_s,
            progress.restored_step,
            progress.plan_version,
        )
        self._seq += 2
        _SEQ.pack_into(self._map, 0, self._seq)


def read(path: Path) -> Progress | None:
    """Return the newest whole record, or None when there is none (no file, nothing reported, writer died in it)."""
    for attempt in range(_READ_ATTEMPTS):
        try:
            with (
                path.open("rb", buffering=0) as file,
                mmap.mmap(file.fileno(), _RECORD.size, prot=mmap.PROT_READ) as view,
            ):
                before = _SEQ.unpack_from(view, 0)[0]
                body = _BODY.unpack_from(view, _SEQ.size)
                after = _SEQ.unpack_from(view, 0)[0]
        except (OSError, ValueError):
            return None
        if before == after and before % 2 == 0:
            return _progress(body) if before else None
        if attempt > _READ_ATTEMPTS // 2:
            time.sleep(0.0001)
    return None


def _progress(body: tuple[int, int, float, float, float, int, int]) -> Progress:
    epoch, step, loss, wall, step_s, restored_step, plan_version = body
    return Progress(
        epoch=epoch,
        step=step,
        loss=loss,
        wall=wall,
        step_s=step_s,
        restored_step=restored_step,
        plan_version=plan_version,
    )


class StepClock:
    """Measures how long a step takes: a moving average in which a new step counts a fifth."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.step_s = math.nan

    def tick(self, now: float) -> float | None:
        """Count one finished step at the monotonic time `now`; return how long it took, None where that is unknown."""
        took = None if self._since is None else max(0.0, now - self._since)
        if took is not None:
            self.step_s = took if math.isnan(self.step_s) else 0.8 * self.step_s + 0.2 * took
        self._since = now
        return took

    def leave_out_since(self, began: float, now: float) -> None:
        """Leave out what of the step under way lies between two monotonic times: a phase of its own."""
        if self._since is not None:
            self._since += max(0.0, now - max(began, self._since))

    def resume(self, now: float) -> None:
        """Leave out the time since the last tick: a save is no part of a step."""
        self._since = now
