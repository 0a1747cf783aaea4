"""How is one value of a plan read, and what is said when it cannot be right?

Every reader takes (value, field) and returns the clean value or raises InvalidInput: what is wrong with the value
that was given, and as the hint what would be right.
"""

import math
from collections.abc import Callable

from reliability.domain.planner.durations import number, seconds, shown
from reliability.errors import InvalidInput

Reader = Callable[[object, str], float | int | str | None]

WEEK_S = 604_800.0
DAY_S = 86_400.0
NO_FAULTS = {"none", "never", "no faults"}


def duration(value: object, field: str) -> float:
    """Read a duration, 0 or longer."""
    return seconds(value, field)


def positive_duration(value: object, field: str) -> float:
    """Read a duration that cannot be 0."""
    found = seconds(value, field)
    if found == 0:
        raise InvalidInput(field, "0 is not possible", hint="Give a time above 0, such as 30s, or leave it out.")
    return found


def mtbf(value: object, field: str) -> float | None:
    """Read the mean time between faults; None for no faults."""
    if isinstance(value, str) and value.strip().lower() in NO_FAULTS:
        return None
    hint = "Give a time such as 7.9h, or none for a job without faults."
    found = seconds(value, field, hint=hint)
    if found == 0:
        raise InvalidInput(field, "0 would be a fault at every moment", hint=hint)
    return found


def share(value: object, field: str, *, example: str) -> float:
    """Read a share from 0 to 1; a percentage is refused with the share that it means."""
    hint = f"Give a share from 0 to 1, such as {example}."
    if isinstance(value, str) and value.strip().endswith("%"):
        found = number(value.strip()[:-1], field, hint)
        raise InvalidInput(field, f"{shown(value.strip())} is a percentage", hint=_as_share(found) or hint)
    found = number(value, field, hint)
    if found < 0:
        raise InvalidInput(field, f"{shown(value)} is negative", hint=hint)
    if 1 < found <= 100:
        raise InvalidInput(field, f"{shown(value)} is a percentage", hint=_as_share(found) or hint)
    if found > 100:
        raise InvalidInput(field, f"{shown(value)} is more than the whole", hint=hint)
    return abs(found)


def _as_share(percent: float) -> str:
    return f"Write {percent / 100:.12g}." if 0 <= percent <= 100 else ""


def target(value: object, field: str) -> float:
    """Read the wanted share of time: above 0, below 1."""
    found = share(value, field, example="0.97")
    if found in (0.0, 1.0):
        told = "would allow no loss at all" if found else "would be met by a job that never trains"
        raise InvalidInput(field, f"{found:g} {told}", hint="Give a share between 0 and 1, such as 0.97.")
    if found < 1e-9:
        raise InvalidInput(field, f"{shown(value)} is too small", hint="Give a share such as 0.97.")
    return found


def cluster_availability(value: object, field: str) -> float:
    """Read the share of time in which the job can run at all: above 0, at most 1."""
    found = share(value, field, example="0.99")
    if found < 1e-9:
        raise InvalidInput(field, "0 would be a cluster that never runs", hint="Give a share such as 0.99, or 1.")
    return found


def part_of_faults(value: object, field: str) -> float:
    """Read a share of all faults, 0 to 1."""
    return share(value, field, example="0.6")


def count(least: int, most: int, example: str) -> Callable[[object, str], int]:
    """Return the reader of a whole number within bounds."""

    def read(value: object, field: str) -> int:
        hint = f"Give a whole number from {least} to {most}, such as {example}."
        found = value if _whole(value) else number(value, field, hint)
        if not isinstance(found, int | float) or found != math.floor(found):
            raise InvalidInput(field, f"{shown(value)} is not a whole number", hint=hint)
        if found < 0:
            raise InvalidInput(field, f"{shown(value)} is negative", hint=hint)
        if found < least:
            raise InvalidInput(field, f"{shown(value)} is not possible", hint=hint)
        if found > most:
            raise InvalidInput(field, f"{shown(value)} is too many", hint=hint)
        return int(found)

    return read


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def per_time(most: float, example: str) -> Callable[[object, str], float]:
    """Return the reader of a frequency, 0 or more."""

    def read(value: object, field: str) -> float:
        hint = f"Give a number such as {example}, or 0 for none."
        found = number(value, field, hint)
        if found < 0:
            raise InvalidInput(field, f"{shown(value)} is negative", hint=hint)
        if 0 < found < 1e-6:
            raise InvalidInput(field, f"{shown(value)} is next to never", hint=hint)
        if found > most:
            raise InvalidInput(field, f"{shown(value)} is too many", hint=hint)
        return found

    return read


def one_of(*words: str) -> Callable[[object, str], str]:
    """Return the reader of one of a few words."""

    def read(value: object, field: str) -> str:
        found = value.strip().lower() if isinstance(value, str) else value
        if found not in words or not isinstance(found, str):
            raise InvalidInput(field, f"{shown(value)} is not known", hint=f"One of: {', '.join(words)}.")
        return found

    return read
