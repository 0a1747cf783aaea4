"""What do saving, rollback and faults cost by the exact model, as -ln of the share of time that each leaves?

The shares multiply, so these add up; nothing overflows, and a loss of a billionth keeps its digits.
"""

import math

from reliability.domain.planner import tiers
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.roots import falling, log_growth, log_growth_slope


def log_ratio(larger: float, smaller: float) -> float:
    """Return ln(larger / smaller) without losing digits where they are nearly equal."""
    ratio = (larger - smaller) / smaller
    return math.log1p(ratio) if -0.5 < ratio < 1.0 else math.log(larger) - math.log(smaller)


def fixed(inputs: Inputs, mtbf_s: float) -> float:
    """Return the loss that does not depend on the period: lambda (R + d) + ln(1 + lambda D), d the mean drain."""
    return (inputs.recovery_s + inputs.mean_drain_s) / mtbf_s + math.log1p(inputs.downtime_s / mtbf_s)


def rollback(inputs: Inputs, mtbf_s: float, period_s: float) -> float:
    """Return what faults undo at a period: ln((e^x - 1)/x) + lambda d, x = lambda tau, and more where tiers lag."""
    lost = log_growth(period_s / mtbf_s) + inputs.mean_drain_s / mtbf_s
    return lost + tiers.behind(inputs.lags, mtbf_s, period_s) if period_s < inputs.slowest_s else lost


def choice(inputs: Inputs, mtbf_s: float) -> tuple[float, float]:
    """Return the best period in seconds, not below the drain, and the loss to saving and rollback at it.

    The loss is y with excess(y) = lambda O, or ln((e^x - 1)/x) - ln(1 - O/d) with x = lambda d at the drain; searched
    for where a tier is slower than this period. The drains themselves are in `fixed`.
    """
    stall_s, drain_s = inputs.save_stall_s, inputs.drain_s
    y = falling(stall_s / mtbf_s)
    period_s = stall_s - mtbf_s * math.expm1(-y)
    if inputs.tiers:
        return (period_s, y) if period_s >= inputs.slowest_s else tiers.best(inputs.tiers, stall_s, mtbf_s, period_s)
    if period_s >= drain_s:
        return period_s, y
    return drain_s, log_growth(drain_s / mtbf_s) - math.log1p(-stall_s / drain_s)


def choice_slope(inputs: Inputs, mtbf_s: float, period_s: float) -> float:
    """Return how fast the loss of `choice` grows with the rate of faults, seconds: O/(1 - e^-y), or at the drain."""
    if period_s <= inputs.slowest_s:
        at_period = period_s * log_growth_slope(period_s / mtbf_s)
        return at_period + tiers.behind_slope_s(inputs.lags, mtbf_s, period_s)
    stall_s = inputs.save_stall_s
    return stall_s * mtbf_s / (period_s - stall_s) if stall_s else 0.0
