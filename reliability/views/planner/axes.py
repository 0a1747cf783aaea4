"""Where do axes begin and end, and which times stand at them?"""

from collections.abc import Sequence
from math import log10
from typing import Any

from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
TICKS_S = (
    *(base * 10.0**power for power in range(-9, 1) for base in (1, 2, 5)),
    *(10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, DAY, 2 * DAY, 4 * DAY, 8 * DAY, 16 * DAY, 32 * DAY, 64 * DAY, 128 * DAY),
    *(365.25 * DAY * base * 10.0**power for power in range(8) for base in (1, 2, 5)),
)


def log_range(values: Sequence[float], margin: float = 0.0) -> list[float]:
    """Return the ends of a log axis around values above 0; never empty."""
    low, high = log10(min(values)), log10(max(values))
    if high - low < 0.02:
        low, high = low - 0.3, high + 0.3
    return [low - margin * (high - low), high + margin * (high - low)]


def time_ticks(low_s: float, high_s: float, most: int = 10) -> dict[str, Any]:
    """Return round times between two ends, at most so many, for an axis of seconds."""
    inside = [tick for tick in TICKS_S if low_s <= tick <= high_s]
    every = -(-len(inside) // most)
    kept = inside[:: every or 1]
    return {"tickvals": kept, "ticktext": [spoken(tick) for tick in kept]}


def rate_range(found: Answer) -> list[float]:
    """Return the ends of an axis of per cent: what is lost at best or at the target fills a third of it."""
    lost = 1.0 - min(found.exact.ettr_max, found.inputs.target)
    return [max(0.0, 100 * (1 - 3.5 * lost)), 100.0 + min(1.5, 30 * lost)]
