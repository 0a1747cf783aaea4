"""What does a rank tell beyond its step? Read from the second record of its progress file (docs/protocol.md section 3).

An older client has none; then only the step is known. The program can write there too, so nothing in it is trusted:
what makes no sense is not read, and an age is taken over only where it agrees with what was seen from outside.
"""

import math
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.tiers import opening

AT = 64
VERSION = 1
FORMAT = struct.Struct("<QIIq24s16sdddddqdIIqqIIqdd")
_TRIES = 20
_MOST_S = 1e9
_MOST_STEPS = 2**53
_NAME = re.compile(r"[A-Za-z0-9_.-]{0,24}")


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One consistent reading. `moved_at` is of CLOCK_BOOTTIME; None where the rank does not tell.

    waits: in a collective that it marked. bad_*, spike_*: losses that are no numbers, and losses that jumped.
    """

    epoch: int
    moves: int
    phase: str
    role: str
    phase_limit_s: float | None
    moved_at: float | None
    median_s: float | None
    mad_s: float | None
    longest_s: float | None
    timed: int
    compute_s: float | None
    waits: bool
    bad_losses: int
    bad_first: int | None
    bad_last: int | None
    spikes: int
    spike_step: int | None
    spike_loss: float | None
    spike_usual: float | None

    def told(self) -> dict[str, Any]:
        """Return the part of a heartbeat that is the rank's own word."""
        told: dict[str, Any] = {
            "moves": self.moves,
            "phase_limit_s": self.phase_limit_s,
            "waits": self.waits,
            "role": self.role,
            "median_s": self.median_s,
            "mad_s": self.mad_s,
            "longest_s": self.longest_s,
            "timed": self.timed,
            "compute_s": self.compute_s,
        }
        if self.bad_losses:
            told["bad_loss"] = {"count": self.bad_losses, "first": self.bad_first, "last": self.bad_last}
        if self.spikes:
            how = {"step": self.spike_step, "loss": self.spike_loss, "usual": self.spike_usual}
            told["spike"] = {"count": self.spikes, **how}
        return told


def read(path: Path) -> Watched | None:
    """Return a consistent reading, or None when the file has no such record, or one that makes no sense."""
    for _ in range(_TRIES):
        try:
            with os.fdopen(opening.regular(path), "rb", buffering=0) as file:
                first = os.pread(file.fileno(), FORMAT.size, AT)
                second = os.pread(file.fileno(), FORMAT.size, AT)
        except OSError:
            return None
        if len(first) != FORMAT.size:
            return None
        values = FORMAT.unpack(first)
        if first == second and values[0] and not values[0] % 2:
            return _watched(values)
    return None


def _watched(values: tuple[Any, ...]) -> Watched | None:
    (
        _seq, version, moves, epoch, phase, role, phase_limit_s, moved_at, median_s, mad_s, longest_s, timed, compute_s,
        waits, bad_losses, bad_first, bad_last, spikes, _spare, spike_step, spike_loss, spike_usual,
    ) = values  # fmt: skip
    names = [_text(phase), _text(role)]
    if version < VERSION or None in names or not 0 <= timed < _MOST_STEPS:
        return None
    return Watched(
        epoch=epoch,
        moves=moves,
        phase=names[0] or "",
        role=names[1] or "",
        phase_limit_s=_seconds(phase_limit_s),
        moved_at=_seconds(moved_at),
        median_s=_seconds(median_s),
        mad_s=_seconds(mad_s),
        longest_s=_seconds(longest_s),
        timed=timed,
        compute_s=_seconds(compute_s),
        waits=bool(waits),
        bad_losses=min(bad_losses, 2**31 - 1),
        bad_first=_step(bad_first),
        bad_last=_step(bad_last),
        spikes=min(spikes, 2**31 - 1),
        spike_step=_step(spike_step),
        spike_loss=_figure(spike_loss),
        spike_usual=_figure(spike_usual),
    )


def _text(raw: bytes) -> str | None:
    text = raw.rstrip(b"\x00").decode("ascii", "replace")
    return text if _NAME.fullmatch(text) else None


def _seconds(value: float) -> float | None:
    """A phase of which nothing is left has 0 seconds."""
    return max(0.0, value) if math.isfinite(value) and -_MOST_S <= value <= _MOST_S else None


def _step(value: int) -> int | None:
    return value if 0 <= value < _MOST_STEPS else None


def _figure(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) <= 1e15 else None
