"""How does the result move with the period, and the best period with an input? Rows for figures and tables."""

import math
from dataclasses import replace
from typing import Literal

from reliability.domain.planner import exact, first_order
from reliability.domain.planner.inputs import MOST_S, Inputs
from reliability.domain.planner.results import Shares
from reliability.domain.planner.values import DAY_S
from reliability.errors import InvalidInput

Varied = Literal["mtbf_s", "save_stall_s"]

_AROUND = 10.0
_SHORTEST_S = 1e-9


def periods(inputs: Inputs, points: int, present_s: float | None = None) -> tuple[float, ...]:
    """Return periods in seconds, evenly spaced on a log axis, from a tenth of the best one to ten times as long.

    They cover the interval that keeps the target and the present period where it is given; none is shorter than the
    stall or a nanosecond, and only a present period is shorter than the drain. Raises InvalidInput for fewer than 2
    points.
    """
    plan = exact.plan(inputs)
    low_s, high_s = plan.interval_s or (None, None)
    middle_s = plan.period_s or low_s or high_s or inputs.drain_s or inputs.save_stall_s or 1.0
    covered = [value for value in (low_s, high_s, present_s) if value]
    least = min(max(middle_s / _AROUND, inputs.drain_s), *covered, middle_s)
    least = max(least, inputs.save_stall_s, _SHORTEST_S)
    return _spaced(least, max(middle_s * _AROUND, *covered, least * _AROUND), points)


def rate_curve(
    inputs: Inputs, points: int, present_s: float | None = None
) -> tuple[tuple[float, float, float | None], ...]:
    """Return rows (period in seconds, exact rate, first-order rate); the last None where it would be negative."""
    rows = []
    for period_s in periods(inputs, points, present_s):
        lower = first_order.ettr_at(inputs, period_s)
        rows.append((period_s, exact.ettr_at(inputs, period_s), lower if lower >= 0 else None))
    return tuple(rows)


def loss_curve(inputs: Inputs, points: int, present_s: float | None = None) -> tuple[tuple[float, Shares], ...]:
    """Return rows (period in seconds, where the time goes by the exact model)."""
    return tuple((period_s, exact.shares_at(inputs, period_s)) for period_s in periods(inputs, points, present_s))


def optimum_curve(inputs: Inputs, vary: Varied, points: int) -> tuple[tuple[float, float | None, float | None], ...]:
    """Return rows (value of the varied input, best period, best rate), from a tenth of the value to ten times it.

    Seconds; around a day where there are no faults, and around a second where saves cost nothing. Period and rate are
    those of `best_with`. Raises InvalidInput for fewer than 2 points.
    """
    present = (inputs.mtbf_s or DAY_S) if vary == "mtbf_s" else (inputs.save_stall_s or 1.0)
    values = _spaced(present / _AROUND, present * _AROUND, points)
    return tuple((value, *best_with(inputs, vary, value)) for value in values)


def best_with(inputs: Inputs, vary: Varied, value: float) -> tuple[float | None, float | None]:
    """Return the best period and its rate with another value of one input; None where that leaves no time to train.

    The period is None without faults as well.
    """
    try:
        return exact.best(replace(inputs, mtbf_s=value) if vary == "mtbf_s" else replace(inputs, save_stall_s=value))
    except InvalidInput:
        return None, None


def _spaced(low: float, high: float, points: int) -> tuple[float, ...]:
    if points < 2:
        raise InvalidInput("points", f"{points} is too few for a curve", hint="Ask for 2 or more.")
    low, high = max(low, 1 / MOST_S), min(high, MOST_S)
    ratio = math.log(high / low) / (points - 1)
    return (low, *(low * math.exp(ratio * index) for index in range(1, points - 1)), high)
