"""What would one input alone have to be, by the exact model, for the target to be just reachable?"""

import math
from collections.abc import Callable
from dataclasses import replace

from reliability.domain.planner import tiers
from reliability.domain.planner.inputs import LEAST_MTBF_S, Inputs, available_share
from reliability.domain.planner.losses import choice, choice_slope, fixed, log_ratio
from reliability.domain.planner.roots import climbed, crossing, excess
from reliability.errors import InvalidInput

DowntimeAt = Callable[[float], float]
"""The downtime in seconds for a rate of faults per second."""
InputsAt = Callable[[float], Inputs]
"""All inputs for a rate of faults per second."""

_ROUNDING = 1e-15
_NO_STALL_S = 1e-200
_LEAST = 1e-300
_MUCH = 1e4


def stall_limit(inputs: Inputs) -> float | None:
    """Return the longest stall in seconds with which the target is reachable, None when none is or without faults.

    O = (g - 1 - ln g)/lambda with g = E* e^(lambda (R + d)) (1 + lambda D) for g < 1; with the period at the drain,
    where that is longer, O = d - g (e^(lambda d) - 1)/lambda; searched for where a tier lags behind. E* is the target
    over the available share of time.
    """
    if inputs.mtbf_s is None:
        return None
    budget = log_ratio(inputs.available, inputs.target) - fixed(inputs, inputs.mtbf_s)
    if budget < 0:
        return None
    x = inputs.slowest_s / inputs.mtbf_s
    if x <= budget:
        return inputs.mtbf_s * excess(budget)
    if inputs.tiers:
        return tiers.most_stall(inputs.tiers, inputs.mtbf_s, budget)
    if x > budget + 1 + math.log1p(budget):
        return None
    limit = -math.expm1(-budget) * x - math.exp(-budget) * excess(-x)
    return inputs.mtbf_s * limit if limit >= 0 else None


def recovery_limit(inputs: Inputs) -> float | None:
    """Return the longest recovery in seconds with which the target is reachable, None when none is or nothing limits.

    R = ln(m / (E* (1 + lambda D)))/lambda - d, m what saving and rollback leave. With planned stops, which need the
    recovery too, it is ln(q)/lambda with q = A K (1 + nu/lambda) / (E* + A K nu (1/lambda + D)), K the best rate for
    R = 0 and A = 1; without faults (1 - E*/A)/nu - D. The D of planned stops is their own.
    """
    stops, downtime_s, mtbf_s = inputs.planned_stops_per_s, inputs.stop_downtime_s, inputs.mtbf_s
    if mtbf_s is None:
        limit = (1.0 - inputs.target / inputs.cluster_availability) / stops - downtime_s if stops else math.inf
        return limit if 0.0 <= limit < math.inf else None
    _, lost = choice(inputs, mtbf_s)
    other = lost + inputs.mean_drain_s / mtbf_s + math.log1p(inputs.downtime_s / mtbf_s)
    left = log_ratio(inputs.cluster_availability, inputs.target) - other
    if stops:
        left += math.log1p(-stops * downtime_s)
    if left < 0:
        return 0.0 if left > -_ROUNDING else None
    if not stops:
        return mtbf_s * left
    stopped = inputs.cluster_availability * math.exp(-other) * stops * (mtbf_s + downtime_s)
    return mtbf_s * math.log1p(math.expm1(min(left, 700.0)) * inputs.target / (inputs.target + stopped))


def mtbf_limit(inputs: Inputs, inputs_at: InputsAt | None = None) -> float | None:
    """Return the least mean time between faults in seconds with which the target is reachable: E falls with the rate.

    None when no rate is low enough, or when faults cost nothing. `inputs_at` gives the inputs for a rate of faults per
    second, where more than the rate depends on it.
    """
    never = available_share(inputs, None, inputs.recovery_s)
    if never <= inputs.target:
        return None
    if inputs_at is not None:
        return _searched(inputs, inputs_at)
    stall_s, exposed_s = inputs.save_stall_s, inputs.recovery_s + inputs.mean_drain_s
    if stall_s + exposed_s + inputs.downtime_s == 0:
        return None
    unit_s = max(stall_s, _NO_STALL_S)
    y = _limit_in_y(unit_s, exposed_s, inputs.downtime_s, log_ratio(inputs.cluster_availability, inputs.target))
    mtbf_s = unit_s / excess(y)
    if mtbf_s < LEAST_MTBF_S:
        return None
    binds = stall_s - mtbf_s * math.expm1(-y) < inputs.slowest_s
    return _refined(inputs, mtbf_s) if binds or inputs.planned_stops_per_s else mtbf_s


def _limit_in_y(stall_s: float, exposed_s: float, downtime_s: float, budget: float) -> float:
    """Solve y + lambda (R + d) + ln(1 + lambda D) = budget with lambda O = excess(y) for y, from below."""
    exposed, down = exposed_s / stall_s, downtime_s / stall_s

    def beyond(y: float) -> tuple[float, float]:
        e = excess(y)
        value = y + exposed * e + math.log1p(down * e) - budget
        return value, 1 - math.expm1(-y) * (exposed + down / (1 + down * e))

    first_order = 2 * budget / (1 + math.sqrt(1 + 2 * (exposed + down) * budget))
    return climbed(beyond, first_order, budget, first_order)


def _refined(inputs: Inputs, mtbf_s: float) -> float:
    """Return the limit with a drain that binds and with planned stops, from the one without, which is shorter."""
    exposed_s, downtime_s = inputs.recovery_s + inputs.mean_drain_s, inputs.downtime_s

    def beyond(faults_per_s: float) -> tuple[float, float]:
        mtbf_s = 1.0 / faults_per_s
        available = available_share(inputs, mtbf_s, inputs.recovery_s)
        if available <= 0:
            return math.inf, 1.0
        period_s, lost = choice(inputs, mtbf_s)
        value = lost + fixed(inputs, mtbf_s) - log_ratio(available, inputs.target)
        slope = choice_slope(inputs, mtbf_s, period_s) + exposed_s
        slope += downtime_s / (1 + downtime_s * faults_per_s)
        return value, slope + _stops_slope(inputs, mtbf_s) / available

    return 1.0 / climbed(beyond, 0.0, 1.0 / mtbf_s, 1.0 / mtbf_s)


def _stops_slope(inputs: Inputs, mtbf_s: float) -> float:
    """Return how fast planned stops take time away as the rate of faults grows, A nu dC/dlambda, in seconds."""
    stops = inputs.cluster_availability * inputs.planned_stops_per_s
    if not stops:
        return 0.0
    ratio = inputs.recovery_s / mtbf_s
    growth = mtbf_s * mtbf_s * excess(ratio) + inputs.stop_downtime_s * inputs.recovery_s
    return stops * growth * math.exp(ratio)


def with_downtime(inputs: Inputs, downtime_at: DowntimeAt) -> InputsAt:
    """Return the inputs at a rate of faults per second when only the downtime depends on it."""
    return lambda faults_per_s: replace(inputs, mtbf_s=1.0 / faults_per_s, downtime_s=downtime_at(faults_per_s))


def _searched(inputs: Inputs, inputs_at: InputsAt) -> float | None:
    """Return the limit where standbys make the downtime depend on the rate."""

    def spare(faults_per_s: float) -> float:
        try:
            there = inputs_at(faults_per_s)
        except InvalidInput:
            return -_MUCH
        mtbf_s = 1.0 / faults_per_s
        left = log_ratio(max(there.available, _LEAST), there.target)
        return left - choice(there, mtbf_s)[1] - fixed(there, mtbf_s)

    total_s = inputs.save_stall_s + inputs.recovery_s + inputs.mean_drain_s + inputs.downtime_s
    limit = crossing(spare, inputs.faults_per_s or 1.0 / (total_s or 1.0))
    return None if limit is None else 1.0 / limit
