"""How often should a job save, so that the effective training rate is best or keeps a target (M10)?

First order (Young 1974), all in seconds, with the period counted from start to start of two saves:
    rate(period) = 1 - stall / period - faults_per_s * (period / 2 + recovery + downtime + drain)
The first relation is the time spent on saving, the second the time lost to rollback and recovery. The result is a
lower bound of the exact rate for exponential failures: a period it calls feasible is.
"""

import math
from dataclasses import dataclass

from reliability.errors import InvalidInput

_MAX_S = 1e12
_MIN_MTBF_S = 1e-3
_SHORTEST_S = 1e-9
_TANGENT = 1e-12
"""Relative size below which the ends of the interval are one point and rounding must not decide."""


@dataclass(frozen=True, kw_only=True)
class FirstOrderInputs:
    """What the planner starts from, all times in seconds.

    save_stall_s: how long one save blocks training (not the upload). mtbf_s: mean time between faults of the whole
    job, None for no faults. recovery_s: restore and warm-up after a fault. downtime_s: detection and the swap of
    nodes. drain_s: from the end of the stall until a save is durable. target: wanted effective rate, 0 to 1.
    """

    save_stall_s: float
    mtbf_s: float | None
    recovery_s: float
    target: float
    downtime_s: float = 0.0
    drain_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidInput, naming the field, where a value cannot be planned with."""
        for field in ("save_stall_s", "recovery_s", "downtime_s", "drain_s"):
            _check(field, getattr(self, field), 0.0, _MAX_S, "Give seconds, 0 or more.")
        if self.mtbf_s is not None:
            _check("mtbf_s", self.mtbf_s, _MIN_MTBF_S, _MAX_S, "Give seconds above 0, or nothing for no faults.")
        _check("target", self.target, 0.0, 1.0, "Give a share such as 0.95, not a percentage.")
        if self.target in (0.0, 1.0):
            raise InvalidInput("target", f"{self.target:g} is not between 0 and 1", hint="Give a share such as 0.95.")

    @property
    def faults_per_s(self) -> float:
        """Faults of the whole job per second."""
        return 0.0 if self.mtbf_s is None else 1.0 / self.mtbf_s

    @property
    def fixed_s(self) -> float:
        """What every fault costs whatever the period is."""
        return self.recovery_s + self.downtime_s + self.drain_s


@dataclass(frozen=True, kw_only=True)
class FirstOrderPlan:
    """The period to use and what it gives.

    `period_s` is the optimum; without faults, where the optimum is never to save, the shortest that keeps the target.
    `optimum_s` is None in that case. Between `low_s` and `high_s` (None: no upper end) the target holds; both are None
    when it cannot be reached. The three levers say what one input alone would have to be for the target to be just
    reachable: the stall or the recovery at most, the time between faults at least; None where that input alone cannot
    do it, or without faults, where nothing limits it.
    """

    period_s: float
    rate: float
    optimum_s: float | None
    best_rate: float
    feasible: bool
    low_s: float | None
    high_s: float | None
    save_stall_s: float | None
    recovery_s: float | None
    mtbf_s: float | None
    explanation: str


def _check(field: str, value: object, low: float, high: float, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"{value!r} is not a number", hint=hint)
    if not math.isfinite(value):
        raise InvalidInput(field, f"{value} is not a finite number", hint=hint)
    if not low <= value <= high:
        raise InvalidInput(field, f"{value:g} is not between {low:g} and {high:g}", hint=hint)


def _raw_rate(inputs: FirstOrderInputs, period_s: float) -> float:
    saving = inputs.save_stall_s / period_s if inputs.save_stall_s else 0.0
    return 1.0 - saving - inputs.faults_per_s * (period_s / 2 + inputs.fixed_s)


def rate_at(inputs: FirstOrderInputs, period_s: float) -> float:
    """Return the expected effective rate at a period in seconds, at least 0. Raises InvalidInput for a bad period."""
    low = 0.0 if inputs.save_stall_s == 0 else math.ulp(0.0)
    _check("period_s", period_s, low, math.inf, "Give seconds above 0.")
    return max(0.0, _raw_rate(inputs, period_s))


def _interval(inputs: FirstOrderInputs) -> tuple[float, float | None] | None:
    """Ends of the periods that keep the target, None when there are none; a form without cancellation."""
    faults, stall = inputs.faults_per_s, inputs.save_stall_s
    budget = 1.0 - inputs.target - faults * inputs.fixed_s
    if faults == 0:
        return stall / budget, None
    if budget <= 0:
        return None
    squared = budget * budget - 2 * faults * stall
    if abs(squared) <= _TANGENT * budget * budget:
        squared = 0.0
    if squared < 0:
        return None
    both = budget + math.sqrt(squared)
    return 2 * stall / both, both / faults


def _stall_lever(inputs: FirstOrderInputs) -> float | None:
    faults = inputs.faults_per_s
    budget = 1.0 - inputs.target - faults * inputs.fixed_s
    return budget * budget / (2 * faults) if faults > 0 and budget > 0 else None


def _recovery_lever(inputs: FirstOrderInputs) -> float | None:
    faults = inputs.faults_per_s
    if faults == 0:
        return None
    left = (1.0 - inputs.target - math.sqrt(2 * inputs.save_stall_s * faults)) / faults
    lever = left - inputs.downtime_s - inputs.drain_s
    return lever if lever >= 0 else None


def _mtbf_lever(inputs: FirstOrderInputs) -> float | None:
    """1 / (most faults per second); 0 when neither saving nor recovery costs anything at the optimum."""
    if inputs.faults_per_s == 0:
        return None
    loss, twice = 1.0 - inputs.target, 2 * inputs.save_stall_s
    root = (math.sqrt(twice) + math.sqrt(twice + 4 * inputs.fixed_s * loss)) / (2 * loss)
    return root * root


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _told(seconds: float) -> str:
    """Write a time as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"


def _explain(
    inputs: FirstOrderInputs, period_s: float, best: float, interval: tuple[float, float | None] | None
) -> str:
    target = _percent(inputs.target)
    if inputs.faults_per_s == 0:
        return f"Without faults every period from {_told(period_s)} on keeps {target}; the longer, the better."
    if interval is not None:
        low, high = interval
        ends = f"from {_told(low)} to {_told(high)}" if high is not None else f"from {_told(low)} on"
        if period_s == 0:
            return f"{target} holds for periods {ends}. Saves cost nothing here: save at every step."
        return f"{target} holds for periods {ends}; the best is {_told(period_s)} with {_percent(best)}."
    if best <= 0:
        return (
            f"{target} cannot be reached: by this estimate saves, rollback and recovery take all of the time. "
            "That is shown as 0 %; so far out the estimate itself is too low. It takes fewer faults, or a shorter "
            "recovery or stall."
        )
    refused = f"{target} cannot be reached: the best is {_percent(best)} at {_told(period_s)}."
    if inputs.faults_per_s * inputs.fixed_s >= 1.0 - inputs.target:
        return f"{refused} Recovery alone uses up what may be lost, so faster saves cannot help."
    return f"{refused} Shorten the stall or the recovery, or lower the number of faults."


def first_order(inputs: FirstOrderInputs) -> FirstOrderPlan:
    """Return the optimum period, the interval that keeps the target, and what it would take otherwise.

    Rates below 0, where first order no longer describes anything, are given as 0 and explained.
    """
    faults, stall = inputs.faults_per_s, inputs.save_stall_s
    interval = _interval(inputs)
    if faults == 0:
        optimum, period_s, best = None, stall / (1.0 - inputs.target), 1.0
        rate = max(0.0, _raw_rate(inputs, period_s))
    else:
        optimum = period_s = math.sqrt(2 * stall / faults)
        best = rate = max(0.0, 1.0 - faults * inputs.fixed_s - math.sqrt(2 * stall * faults))
    low, high = interval if interval is not None else (None, None)
    return FirstOrderPlan(
        period_s=period_s,
        rate=rate,
        optimum_s=optimum,
        best_rate=best,
        feasible=interval is not None,
        low_s=low,
        high_s=high,
        save_stall_s=_stall_lever(inputs),
        recovery_s=_recovery_lever(inputs),
        mtbf_s=_mtbf_lever(inputs),
        explanation=_explain(inputs, period_s, best, interval),
    )


def curve(inputs: FirstOrderInputs, points: int) -> list[tuple[float, float]]:
    """Return `points` pairs (period in seconds, effective rate), evenly spaced on a log axis around the plan.

    Reaches from a tenth to ten times the planned period and covers the interval that keeps the target; no period is
    shorter than the stall or than a nanosecond. Raises InvalidInput for fewer than 2 points.
    """
    if points < 2:
        raise InvalidInput("points", f"{points} is too few for a curve", hint="Ask for 2 or more.")
    plan = first_order(inputs)
    middle = plan.period_s or plan.high_s or 1.0
    low = max(inputs.save_stall_s, min(middle / 10, plan.low_s or middle), _SHORTEST_S)
    high = max(middle * 10, plan.high_s or 0.0, low * 10)
    ratio = math.log(high / low) / (points - 1)
    periods = [low * math.exp(ratio * index) for index in range(points)]
    return [(period_s, rate_at(inputs, period_s)) for period_s in periods]


def steps(period_s: float, stall_s: float, step_s: float) -> int:
    """Return the number of steps between two saves, at least 1, that comes nearest to a start-to-start period.

    A period of n steps is n * step_s + stall_s. Nearest on a log axis, on which the first-order loss is symmetric
    around its optimum: of the two whole numbers around an optimum this is the better one.
    """
    _check_steps(stall_s, step_s)
    _check("period_s", period_s, 0.0, _MAX_S, "Give seconds, 0 or more.")
    below = max(1, math.floor((period_s - stall_s) / step_s))
    if period_s <= 0:
        return below

    def loss(count: int) -> float:
        ratio = (count * step_s + stall_s) / period_s
        return ratio + 1 / ratio

    return min((below, below + 1), key=loss)


def steps_interval(low_s: float, high_s: float | None, stall_s: float, step_s: float) -> tuple[int, int | None] | None:
    """Return the numbers of steps whose periods lie within low_s and high_s, None when no whole number does.

    The lower end is rounded up and the upper end down, so that the target holds at both.
    """
    _check_steps(stall_s, step_s)
    low = max(1, math.ceil((low_s - stall_s) / step_s))
    if high_s is None:
        return low, None
    high = math.floor((high_s - stall_s) / step_s)
    return (low, high) if high >= low else None


def _check_steps(stall_s: float, step_s: float) -> None:
    _check("stall_s", stall_s, 0.0, _MAX_S, "Give seconds, 0 or more.")
    _check("step_s", step_s, 1e-9, _MAX_S, "Give the time of one step in seconds, above 0.")
