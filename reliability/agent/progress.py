"""How far is a rank? Read from the 64 bytes it keeps up to date (docs/protocol.md section 3)."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from reliability.tiers import opening

_FORMAT = struct.Struct("<QqqdddqQ")
_TRIES = 20
_MOST_STEPS = 2**53
_MOST = 2**31


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One consistent reading. `wall` is the node's clock at the last step; `step_s` its recent duration."""

    seq: int
    epoch: int
    step: int
    loss: float
    wall: float
    step_s: float
    restored_step: int
    plan_version: int


def read(path: Path) -> Progress | None:
    """Return a consistent reading, or None when there is no file, none was written, or a writer died in the middle."""
    for _ in range(_TRIES):
        try:
            with os.fdopen(opening.regular(path), "rb", buffering=0) as file:
                first = file.read(_FORMAT.size)
                file.seek(0)
                second = file.read(_FORMAT.size)
        except OSError:
            return None
        if len(first) != _FORMAT.size:
            return None
        values = _FORMAT.unpack(first)
        if first == second and values[0] and not values[0] % 2:
            return _sane(_progress(values))
    return None


def _sane(found: Progress) -> Progress | None:
    """The program can write there too: what no rank can have reached is not read."""
    steps = 0 <= found.step < _MOST_STEPS and -1 <= found.restored_step < _MOST_STEPS
    return found if steps and 0 <= found.epoch < _MOST and found.plan_version < _MOST else None


def _progress(values: tuple[int, int, int, float, float, float, int, int]) -> Progress:
    seq, epoch, step, loss, wall, step_s, restored_step, plan_version = values
    return Progress(
        seq=seq,
        epoch=epoch,
        step=step,
        loss=loss,
        wall=wall,
        step_s=step_s,
        restored_step=restored_step,
        plan_version=plan_version,
    )
