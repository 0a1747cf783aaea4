"""What does the planner say with two relations that a person can check by hand?

Time spent on saving, O/tau, and time lost to faults, lambda (tau/2 + R + D + d), add up; the rest is kept:

    E(tau) = 1 - O/tau - lambda (tau/2 + R + D + d)        best at tau = sqrt(2 O / lambda)

Where a tier with the drain d_c, needed by lambda_c of the faults, is slower than the period, a fault that needs it
undoes lambda_c (d_c - tau)/2 more: its copies are drained back to back.

It explains the exact model and is a proven lower bound of it, so a period that it calls sufficient is sufficient. Far
from E = 1 it is too low and may even be negative; such values are given as they are, to be shown by nobody.

Source: Young 1974, "A first order approximation to the optimum checkpoint interval".
"""

import math
from itertools import pairwise

from reliability.domain.planner.inputs import LEAST_MTBF_S, Inputs, available_share, check_period
from reliability.domain.planner.results import Limits, ModelPlan, Shares
from reliability.domain.planner.roots import crossing

MODEL = "first_order"

_TANGENT = 1e-12
_ROUNDING = 1e-15


def ettr_at(inputs: Inputs, period_s: float) -> float:
    """Return E(tau) times the share of time that is available, raw: it may be negative.

    period_s: start to start, seconds; 0 only where a save takes no time. Raises InvalidInput for any other period.
    """
    check_period(inputs, period_s)
    return inputs.available * (1.0 - _lost(inputs, period_s, inputs.faults_per_s) - _fixed(inputs))


def shares_at(inputs: Inputs, period_s: float) -> Shares:
    """Return where the time goes at a period (seconds, start to start); adds up to 1, `useful` may be negative.

    Of the available time: saving O/tau, rollback lambda (tau/2 + d) and what lags behind, recovery lambda R, downtime
    lambda D. Raises InvalidInput as `ettr_at` does.
    """
    check_period(inputs, period_s)
    saving = inputs.save_stall_s / period_s if period_s else 0.0
    undone_s = period_s / 2 + inputs.mean_drain_s + _behind_s(inputs, period_s)
    return _shares(inputs, saving, inputs.faults_per_s * undone_s)


def plan(inputs: Inputs) -> ModelPlan:
    """Return the best period, what it gives (raw), the periods that keep the target, and the limits of each input.

    With B = 1 - E* - lambda (R + D + d) and s = sqrt(B^2 - 2 lambda O) the target holds from 2 O/(B + s) to
    (B + s)/lambda, and not below the drain that every fault needs. Seconds; E* is the target over the share of time
    that is available.
    """
    if inputs.mtbf_s is None:
        return _without_faults(inputs)
    period_s = _period(inputs, inputs.mtbf_s)
    work_s = period_s - inputs.save_stall_s
    interval = _interval(inputs, inputs.mtbf_s, period_s)
    return ModelPlan(
        model=MODEL,
        period_s=period_s,
        work_s=work_s if work_s >= 0 else None,
        ettr_max=ettr_at(inputs, period_s),
        feasible=interval is not None,
        interval_s=interval,
        shares=shares_at(inputs, period_s),
        limits=Limits(
            save_stall_s=_stall_limit(inputs, inputs.mtbf_s),
            recovery_s=_recovery_limit(inputs, inputs.mtbf_s, period_s),
            mtbf_s=_mtbf_limit(inputs),
        ),
    )


def _lost(inputs: Inputs, period_s: float, faults_per_s: float) -> float:
    saving = inputs.save_stall_s / period_s if period_s else 0.0
    return saving + faults_per_s * (period_s / 2 + _behind_s(inputs, period_s))


def _behind_s(inputs: Inputs, period_s: float) -> float:
    """Return how much older the newest copies are because tiers cannot follow every save: the mean over all faults."""
    if period_s >= inputs.slowest_s:
        return 0.0
    return math.fsum(share * max(0.0, drain_s - period_s) / 2 for share, drain_s in inputs.lags)


def _pieces(inputs: Inputs) -> list[tuple[float, float, float, float]]:
    """Return rows (from, up to, share, late): between two drains faults undo share tau/2 + late, all seconds."""
    drains = sorted({drain_s for _, drain_s in inputs.tiers}) if inputs.tiers else []
    bounds = [0.0, *drains, math.inf]
    rows = []
    for low, high in pairwise(bounds):
        late = [(share, drain_s) for share, drain_s in inputs.tiers if drain_s >= high]
        share = max(0.0, 1.0 - math.fsum(share for share, _ in late))
        rows.append((low, high, share, math.fsum(share * drain_s for share, drain_s in late) / 2))
    return rows


def _fixed_s(inputs: Inputs) -> float:
    return inputs.recovery_s + inputs.downtime_s + inputs.mean_drain_s


def _fixed(inputs: Inputs) -> float:
    return inputs.faults_per_s * _fixed_s(inputs)


def _loss(inputs: Inputs, available: float) -> float:
    """Return what may be lost of the available time, 1 - E*."""
    return (available - inputs.target) / available


def _period(inputs: Inputs, mtbf_s: float) -> float:
    """The loss falls up to this period and rises from it on; at each drain its slope jumps up."""
    period_s = math.sqrt(2 * inputs.save_stall_s) * math.sqrt(mtbf_s)
    if period_s >= inputs.slowest_s or not inputs.tiers:
        return max(period_s, inputs.drain_s)
    for low, high, share, _ in _pieces(inputs):
        within_s = period_s / math.sqrt(share) if share else math.inf
        if within_s < high or high == math.inf:
            return max(within_s, low)
    raise AssertionError("the last piece has no end")


def _interval(inputs: Inputs, mtbf_s: float, period_s: float) -> tuple[float, float] | None:
    """Ends in a form without cancellation; one point where rounding alone would decide whether there are any."""
    budget = _loss(inputs, inputs.available) - _fixed(inputs)
    spare = budget - _lost(inputs, period_s, inputs.faults_per_s)
    if abs(spare) <= _TANGENT * abs(budget) / 2 + _ROUNDING * (1.0 + _fixed(inputs)):
        return period_s, period_s
    if spare < 0:
        return None
    low = high = period_s
    for start_s, end_s, share, late_s in _pieces(inputs):
        left = budget - late_s / mtbf_s
        inside = left * left - 2 * share * inputs.save_stall_s / mtbf_s
        if inside < 0 or left <= 0:
            continue
        both = left + math.sqrt(inside)
        ends = 2 * inputs.save_stall_s / both, both * mtbf_s / share if share else math.inf
        low, high = _widened(low, high, start_s, end_s, ends)
    return min(max(low, inputs.drain_s), period_s), high


def _widened(low: float, high: float, start_s: float, end_s: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Take in the ends that lie within this piece."""
    if start_s <= ends[0] <= end_s:
        low = min(low, ends[0])
    if start_s <= ends[1] <= end_s:
        high = max(high, ends[1])
    return low, high


def _stall_limit(inputs: Inputs, mtbf_s: float) -> float | None:
    """O = B^2/(2 lambda), or d (B - lambda d/2) with the period at the drain; None when recovery eats the budget."""
    budget = _loss(inputs, inputs.available) - _fixed(inputs)
    if budget < 0:
        return None
    if inputs.slowest_s <= budget * mtbf_s:
        return budget * budget / 2 * mtbf_s
    if inputs.tiers:
        return _stall_limit_on_tiers(inputs, mtbf_s, budget)
    limit = inputs.drain_s * (budget - inputs.drain_s / mtbf_s / 2)
    return limit if limit >= 0 else None


def _stall_limit_on_tiers(inputs: Inputs, mtbf_s: float, budget: float) -> float | None:
    """The largest tau (B - lambda (share tau/2 + late)) of all pieces; it has one maximum."""
    most = -1.0
    for start_s, end_s, share, late_s in _pieces(inputs):
        left_s = budget * mtbf_s - late_s
        if left_s < 0:
            continue
        at_s = min(max(left_s / share if share else math.inf, start_s), end_s)
        if at_s < math.inf:
            most = max(most, at_s * (left_s - share * at_s / 2) / mtbf_s)
    return most if most >= 0 else None


def _recovery_limit(inputs: Inputs, mtbf_s: float, period_s: float) -> float | None:
    """R = (1 - E* - O/tau - lambda tau/2)/lambda - D - d; searched for where planned stops need the recovery too."""
    other = _lost(inputs, period_s, 1 / mtbf_s) + (inputs.downtime_s + inputs.mean_drain_s) / mtbf_s
    left = _loss(inputs, inputs.cluster_availability) - other
    if left < 0:
        return 0.0 if left > -_ROUNDING else None
    if not inputs.planned_stops_per_s:
        return left * mtbf_s

    def spare(recovery_s: float) -> float:
        available = available_share(inputs, mtbf_s, recovery_s)
        return available * (1.0 - other - recovery_s / mtbf_s) - inputs.target

    return crossing(spare, left * mtbf_s) if left and spare(0.0) > 0 else None


def _mtbf_limit(inputs: Inputs) -> float | None:
    """1/lambda = [(sqrt(2 O) + sqrt(2 O + 4 F L))/(2 L)]^2 with L = 1 - E*, F = R + D + d; at the drain otherwise."""
    never = available_share(inputs, None, inputs.recovery_s)
    loss, stall_s, fixed_s, drain_s = _loss(inputs, never), inputs.save_stall_s, _fixed_s(inputs), inputs.drain_s
    if never <= inputs.target or stall_s + fixed_s == 0:
        return None
    root = (math.sqrt(2 * stall_s) + math.sqrt(2 * stall_s + 4 * fixed_s * loss)) / (2 * loss)
    limit = root * root
    if math.sqrt(2 * stall_s) * root < drain_s:
        limit = (drain_s / 2 + fixed_s) / (loss - stall_s / drain_s)
    if limit < LEAST_MTBF_S:
        return None
    lags = inputs.tiers and math.sqrt(2 * stall_s) * math.sqrt(limit) < inputs.slowest_s
    return _searched_mtbf_limit(inputs, 1 / limit) if lags or inputs.planned_stops_per_s else limit


def _searched_mtbf_limit(inputs: Inputs, guess: float) -> float | None:
    """Return the limit where planned stops leave no closed form."""

    def spare(faults_per_s: float) -> float:
        available = available_share(inputs, 1 / faults_per_s, inputs.recovery_s)
        lost = _lost(inputs, _period(inputs, 1 / faults_per_s), faults_per_s) + faults_per_s * _fixed_s(inputs)
        return available * (1.0 - lost) - inputs.target

    limit = crossing(spare, guess)
    return None if limit is None else 1 / limit


def _without_faults(inputs: Inputs) -> ModelPlan:
    """The same as in the exact model: without faults both are E(tau) = 1 - O/tau."""
    available, target, stops = inputs.available, inputs.target, inputs.planned_stops_per_s
    interval: tuple[float, float | None] | None = None
    if available > target or (available == target and inputs.save_stall_s == 0):
        low = inputs.save_stall_s / _loss(inputs, available) if inputs.save_stall_s else 0.0
        interval = max(low, inputs.drain_s), None
    recovery_s = _loss(inputs, inputs.cluster_availability) / stops - inputs.stop_downtime_s if stops else -1.0
    return ModelPlan(
        model=MODEL,
        period_s=None,
        work_s=None,
        ettr_max=available,
        feasible=interval is not None,
        interval_s=interval,
        shares=_shares(inputs, 0.0, 0.0),
        limits=Limits(
            save_stall_s=None,
            recovery_s=recovery_s if 0.0 <= recovery_s < math.inf else None,
            mtbf_s=_mtbf_limit(inputs),
        ),
    )


def _shares(inputs: Inputs, saving: float, rollback: float) -> Shares:
    """Shares of the available time to shares of all time; planned stops as in the exact model."""
    available, faults = inputs.available, inputs.faults_per_s
    recovery, downtime = faults * inputs.recovery_s, faults * inputs.downtime_s
    useful = available * (1.0 - saving - rollback - recovery - downtime)
    stops = inputs.cluster_availability * inputs.planned_stops_per_s
    ratio = faults * inputs.recovery_s if stops else 0.0
    restored_s = math.expm1(ratio) / faults if stops and faults else inputs.recovery_s
    return Shares(
        useful=useful,
        saving=available * saving,
        rollback=available * rollback,
        recovery=available * recovery + stops * restored_s,
        downtime=available * downtime
        + stops * inputs.stop_downtime_s * math.exp(ratio)
        + 1
        - inputs.cluster_availability,
    )
