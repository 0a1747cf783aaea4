"""How far is a rank? Read from the 64 bytes it keeps up to date (docs/protocol.md section 3)."""

import struct
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<QqqdddqQ")
_TRIES = 20


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
            with path.open("rb", buffering=0) as file:
                first = file.read(_FORMAT.size)
                file.seek(0)
                second = file.read(_FORMAT.size)
        except OSError:
            return None
        if len(first) != _FORMAT.size:
            return None
        values = _FORMAT.unpack(first)
        if first == second and values[0] and not values[0] % 2:
            return _progress(values)
    return None


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
