"""How many training steps is a period, so that the target still holds?"""

import math
from dataclasses import dataclass

from reliability.domain.planner import exact, first_order
from reliability.domain.planner.inputs import MOST_S, Inputs, check
from reliability.domain.planner.results import ModelPlan

MOST_STEPS = 10_000_000
"""More steps between two saves are nothing that a job is ordered."""
_LEAST_STEP_S = 1e-9
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A plan in steps: save after every so many, what period (seconds, start to start) and what rate that is.

    `interval` holds the numbers of steps that keep the target, its upper end None where there is none; None when no
    whole number of steps does.
    """

    every_steps: int
    period_s: float
    ettr: float
    interval: tuple[int, int | None] | None


def step_plan(inputs: Inputs, model_plan: ModelPlan, step_s: float) -> StepPlan | None:
    """Return the best number of steps between two saves, and those that keep the target.

    A period of n steps is n * step_s + O, seconds. Of the two whole numbers around the optimum the better one by the
    model of the plan is taken, within the numbers that keep the target where there are any; the lower end of those is
    rounded up, the upper end down. Without faults it is the low end, None where the target cannot be kept. At least 1
    step, and as many as the drain takes. `ettr` is the exact rate. Raises InvalidInput for a bad step time.
    """
    check("step_s", step_s, _LEAST_STEP_S, MOST_S, "Give the time of one step in seconds, above 0.")
    interval = _interval(inputs, model_plan, step_s)
    if model_plan.period_s is None:
        if interval is None:
            return None
        every = interval[0]
    else:
        every = _better(inputs, model_plan, model_plan.period_s, step_s)
        if interval is not None:
            every = max(every, interval[0])
            every = every if interval[1] is None else min(every, interval[1])
    period_s = every * step_s + inputs.save_stall_s
    return StepPlan(every, period_s, exact.ettr_at(inputs, period_s), interval)


def _interval(inputs: Inputs, model_plan: ModelPlan, step_s: float) -> tuple[int, int | None] | None:
    if model_plan.interval_s is None:
        return None
    low_s, high_s = model_plan.interval_s
    low = max(1, _up((low_s - inputs.save_stall_s) / step_s))
    if high_s is None:
        return low, None
    high = _down((high_s - inputs.save_stall_s) / step_s)
    return (low, high) if low <= high else None


def _better(inputs: Inputs, model_plan: ModelPlan, period_s: float, step_s: float) -> int:
    ettr_at = first_order.ettr_at if model_plan.model == first_order.MODEL else exact.ettr_at
    least = max(1, _up((inputs.drain_s - inputs.save_stall_s) / step_s))
    below = max(least, math.floor((period_s - inputs.save_stall_s) / step_s))
    return max((below, below + 1), key=lambda every: ettr_at(inputs, every * step_s + inputs.save_stall_s))


def _up(steps: float) -> int:
    """Round up, but not for the rounding of a whole number of steps."""
    return math.ceil(steps - _ROUNDING * abs(steps))


def _down(steps: float) -> int:
    return math.floor(steps + _ROUNDING * abs(steps))
