"""How much may a measured rate differ from the plan by chance alone, before the plan is called missed?"""

import math
from typing import Literal

from reliability.domain.planner.inputs import MOST_S, Inputs, check, check_period
from reliability.domain.planner.losses import rollback

Verdict = Literal["as planned", "below plan", "above plan"]

_DEVIATIONS = 2.0
_LEAST_WINDOW_S = 1e-9


def ettr_sd(inputs: Inputs, period_s: float, window_s: float) -> float:
    """Return the standard deviation of the effective training rate realised in a window of that many seconds.

    sd = sqrt([((e0 - E)/lambda)^2 + (e0 tau)^2/12] lambda/(1 + lambda D)/T) with e0 = w/(w + O): each fault costs a
    recovery and a rollback that is evenly spread over the time between two copies, and their number varies. For windows
    with several faults; the rate of the cluster's own stops counts as its mean. 0 without faults. Raises InvalidInput
    for a bad period or window.
    """
    check_period(inputs, period_s)
    check("window_s", window_s, _LEAST_WINDOW_S, MOST_S, "Give the seconds over which the rate was measured.")
    if inputs.mtbf_s is None or 0 < period_s <= inputs.save_stall_s:
        return 0.0
    mtbf_s, available = inputs.mtbf_s, inputs.available
    between = 1.0 - inputs.save_stall_s / period_s if period_s else 1.0
    lost = rollback(inputs, mtbf_s, period_s) + inputs.recovery_s / mtbf_s + math.log1p(inputs.downtime_s / mtbf_s)
    mean_s = -math.expm1(-lost) * mtbf_s
    per_fault_s = math.hypot(mean_s, rollback_sd_s(inputs, period_s))
    faults = available * window_s / (mtbf_s + inputs.downtime_s)
    return between * per_fault_s * math.sqrt(faults) / window_s


def rollback_sd_s(inputs: Inputs, period_s: float) -> float:
    """Return the standard deviation of what one fault undoes, in seconds: tau / sqrt(12), more over several tiers."""
    quick = max(0.0, 1.0 - math.fsum(share for share, _ in inputs.lags))
    classes = [*inputs.lags, (quick, 0.0)]
    undone = [(share, drain_s + max(period_s, drain_s) / 2, max(period_s, drain_s)) for share, drain_s in classes]
    mean_s = math.fsum(share * middle_s for share, middle_s, _ in undone)
    return math.sqrt(
        math.fsum(share * ((middle_s - mean_s) ** 2 + apart_s**2 / 12) for share, middle_s, apart_s in undone)
    )


def verdict(planned: float, measured: float, sd: float) -> Verdict:
    """Return whether a measured rate is as planned, which it is within two standard deviations."""
    if measured < planned - _DEVIATIONS * sd:
        return "below plan"
    if measured > planned + _DEVIATIONS * sd:
        return "above plan"
    return "as planned"
