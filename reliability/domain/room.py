"""Is a tier about to run full, and when? Told before it bites: without room copying stops, and work is at risk.

The rate is measured: free space at one look against the next, averaged, so that what retention gives back counts, and
so that what is taken once (the slots of a job, the first snapshots of all its nodes) is no rate. A warning is taken
back only when things are clearly better than what raised it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reliability.errors import InvalidInput

LEAST_LOOK_S = 20.0
"""A rate is measured over at least so long."""
SMOOTHING_S = 300.0
"""A measured rate counts with 1 - e^(-seconds / this)."""
LEAST_INODES = 64
"""Fewer free inodes than this: the next files cannot be made."""
MANY_SAVES = 20
"""With room for so many more saves a small free share alone is no reason to warn."""
BETTER = 1.5
"""A limit must be passed by this factor in the good direction before a warning is taken back."""


class Level(StrEnum):
    """How much room there is."""

    OK = "ok"
    LOW = "low"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to warn: full within so many seconds at the present rate, or less than this share of bytes, inodes free."""

    full_within_s: float = 3600.0
    free_share: float = 0.05

    def __post_init__(self) -> None:
        """Raise InvalidInput for limits that are none."""
        if not (math.isfinite(self.full_within_s) and self.full_within_s >= 0):
            raise InvalidInput("warn_full_within_s", "is no time", hint="Seconds from 0 on; 3600 warns an hour ahead.")
        if not 0 <= self.free_share < 1:
            raise InvalidInput("warn_free_share", "is no share below 1", hint="0.05 warns below 5 % of free space.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is free, in bytes and inodes (None: a file system that counts none). `save_bytes`: what one save takes."""

    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None
    total_inodes: int | None = None
    save_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """From where the next rate is measured, and the rate so far in bytes per second (None: not measured yet).

    `sure_bytes_per_s`: the rate at which both this look and those before saw it fill; None where one look alone did.
    """

    anchor_bytes: int
    anchor_at: float
    bytes_per_s: float | None = None
    sure_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How much room there is, why in a sentence, and the seconds until full at the present rate (None: it is not)."""

    level: Level
    words: str = ""
    full_in_s: float | None = None


def read(told: object) -> Space | None:
    """Return the space that a node told of a tier, None when it is not to be understood: nodes may tell anything."""
    if not isinstance(told, Mapping):
        return None
    free, total = _count(told, "free_bytes"), _count(told, "total_bytes")
    if free is None or total is None or not 0 < total < 2**62 or free > total:
        return None
    inodes, all_inodes = _count(told, "free_inodes"), _count(told, "total_inodes")
    if not all_inodes or inodes is None or inodes > all_inodes or all_inodes >= 2**62:
        inodes = all_inodes = None
    return Space(free_bytes=free, total_bytes=total, free_inodes=inodes, total_inodes=all_inodes)


def _count(told: Mapping[Any, Any], key: str) -> int | None:
    value = told.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def observed(before: Trend | None, free_bytes: int, *, at: float) -> Trend:
    """Return the trend with one more look at `at` (seconds). A look that is too soon, or earlier, changes nothing."""
    if before is None:
        return Trend(anchor_bytes=free_bytes, anchor_at=at)
    passed_s = at - before.anchor_at
    if passed_s < LEAST_LOOK_S:
        return before if passed_s >= 0 else Trend(anchor_bytes=free_bytes, anchor_at=at, bytes_per_s=before.bytes_per_s)
    measured = (before.anchor_bytes - free_bytes) / passed_s
    weight = 1 - math.exp(-passed_s / SMOOTHING_S)
    old = before.bytes_per_s
    rate = measured if old is None else old + weight * (measured - old)
    sure = None if old is None else min(old, measured)
    return Trend(anchor_bytes=free_bytes, anchor_at=at, bytes_per_s=rate, sure_bytes_per_s=sure)


def full_in_s(space: Space, bytes_per_s: float | None) -> float | None:
    """Return the seconds until the next save has no room at this rate, None when it does not fill."""
    if bytes_per_s is None or bytes_per_s <= 0:
        return None
    left_s = max(0, space.free_bytes - (space.save_bytes or 0)) / bytes_per_s
    return left_s if math.isfinite(left_s) else None


def judge(space: Space, bytes_per_s: float | None, limits: Limits, *, warned: bool) -> Verdict:
    """Return how much room there is. `warned`: whether a warning stands; clearing it takes BETTER times more."""
    left_s = full_in_s(space, bytes_per_s)
    full = _full(space)
    if full:
        return Verdict(level=Level.FULL, words=full, full_in_s=left_s)
    factor = BETTER if warned else 1.0
    reasons = [*_filling(left_s, limits, factor), *_little(space, limits, factor)]
    return Verdict(level=Level.LOW if reasons else Level.OK, words=" ".join(reasons), full_in_s=left_s)


def _full(space: Space) -> str:
    if space.free_inodes is not None and space.free_inodes < LEAST_INODES:
        return f"Only {space.free_inodes} inodes are free: no more files can be made there."
    if space.free_bytes < (space.save_bytes or 1):
        return "The next save does not fit."
    return ""


def _filling(left_s: float | None, limits: Limits, factor: float) -> list[str]:
    if left_s is None or left_s > limits.full_within_s * factor:
        return []
    return [f"Full in about {_about(left_s)} at this rate."]


def _little(space: Space, limits: Limits, factor: float) -> list[str]:
    reasons = []
    share = space.free_bytes / space.total_bytes
    saves = space.free_bytes // space.save_bytes if space.save_bytes else None
    if share < limits.free_share * factor and (saves is None or saves < MANY_SAVES * factor):
        room = f", room for {saves} more save{'' if saves == 1 else 's'}" if saves is not None else ""
        reasons.append(f"Only {100 * share:.1f} % of it is free{room}.")
    if space.free_inodes is not None and space.total_inodes:
        inodes = space.free_inodes / space.total_inodes
        if inodes < limits.free_share * factor:
            reasons.append(f"Only {100 * inodes:.1f} % of its inodes are free.")
    return reasons


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86400)} days"
