"""Which period is best, and what does it give, when faults strike at random times (the default model)?

Faults come with the rate lambda = 1 / mtbf_s and strike work, stalls and recoveries alike. A fault in a recovery costs
the downtime and begins the recovery again, one in a stall loses the work since the save before. A kept stretch of work
w with its stall O then takes (1/lambda + D) e^(lambda (R + d)) (e^(lambda tau) - 1) on average, tau = w + O, so that

    E(tau) = lambda w e^(-lambda (R + d)) / ((1 + lambda D) (e^(lambda tau) - 1))

with the recovery R, the downtime D and the drain d; `tiers` says what several drains make of it. All of it is exact
for one drain, in closed form but for `roots`, and holds for every lambda O: exponents are kept as logarithms, so that
nothing overflows and a rate too small to write is 0.

Source: for D = d = 0 Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps".
"""

import math

from reliability.domain.planner import tiers
from reliability.domain.planner.inputs import Inputs, check_period
from reliability.domain.planner.limits import (
    DowntimeAt,
    InputsAt,
    mtbf_limit,
    recovery_limit,
    stall_limit,
    with_downtime,
)
from reliability.domain.planner.losses import choice, fixed, log_ratio, rollback
from reliability.domain.planner.results import Limits, ModelPlan, Shares
from reliability.domain.planner.roots import excess, falling, rising

MODEL = "exact_exponential"

_TANGENT = 1e-12
_ROUNDING = 1e-15


def ettr_at(inputs: Inputs, period_s: float) -> float:
    """Return the effective training rate E(tau) times the share of time that is available; from 0 to 1.

    period_s: start to start, seconds; 0 only where a save takes no time. A period below the stall leaves no time for
    work, so 0; at one below a drain the copies of that tier are drained back to back (see `tiers`). Raises InvalidInput
    for any other period.
    """
    check_period(inputs, period_s)
    if period_s <= inputs.save_stall_s and period_s > 0:
        return 0.0
    rate = inputs.available * (1.0 - inputs.save_stall_s / period_s if period_s else 1.0)
    if inputs.mtbf_s is None:
        return rate
    lost = rollback(inputs, inputs.mtbf_s, period_s) + inputs.recovery_s / inputs.mtbf_s
    return rate * math.exp(-lost) / (1.0 + inputs.downtime_s / inputs.mtbf_s)


def shares_at(inputs: Inputs, period_s: float) -> Shares:
    """Return where the time goes at a period (seconds, start to start); the shares add up to 1.

    With x = lambda tau, of the available time: useful E; saving E O/w; downtime lambda D / (1 + lambda D); recovery
    (1 - e^(-lambda R)) / (1 + lambda D); rollback e^(-lambda R) (1 - e^(-lambda d) x/(e^x - 1)) / (1 + lambda D).
    A planned stop costs D e^(lambda R) of downtime and (e^(lambda R) - 1)/lambda of recovery. A period below the stall
    is taken as the stall. Raises InvalidInput as `ettr_at` does.
    """
    check_period(inputs, period_s)
    available = inputs.available
    period_s = max(period_s, inputs.save_stall_s)
    stalled = inputs.save_stall_s / period_s if period_s else 0.0
    if inputs.mtbf_s is None:
        return _with_stops(inputs, available * (1 - stalled), available * stalled, 0.0, 0.0, 0.0)
    mtbf_s = inputs.mtbf_s
    up = available / (1.0 + inputs.downtime_s / mtbf_s)
    running = up * math.exp(-inputs.recovery_s / mtbf_s)
    lost = rollback(inputs, mtbf_s, period_s)
    kept = running * math.exp(-lost)
    return _with_stops(
        inputs,
        useful=kept * (1 - stalled),
        saving=kept * stalled,
        rollback=running * -math.expm1(-lost),
        recovery=up * -math.expm1(-inputs.recovery_s / mtbf_s),
        downtime=available * inputs.downtime_s / (mtbf_s + inputs.downtime_s),
    )


def best(inputs: Inputs) -> tuple[float | None, float]:
    """Return the best period (seconds, start to start; None without faults) and the rate E that it gives.

    tau = O + (1 - m)/lambda and E = m e^(-lambda (R + d)) / (1 + lambda D), where m = e^-y and y - 1 + e^-y = lambda O;
    not below the drain, since a drain ends before the next begins.
    """
    if inputs.mtbf_s is None:
        return None, inputs.available
    period_s, lost = choice(inputs, inputs.mtbf_s)
    return period_s, inputs.available * math.exp(-lost - fixed(inputs, inputs.mtbf_s))


def plan(inputs: Inputs, *, downtime_at: DowntimeAt | None = None, inputs_at: InputsAt | None = None) -> ModelPlan:
    """Return the best period, what it gives, the periods that keep the target, and the limits of each input alone.

    `downtime_at` gives the downtime in seconds for a rate of faults per second, where standbys make it depend on
    that, `inputs_at` all inputs; they count for the limit of the time between faults only. Times are accurate to 1e-9
    of their size, except where the target is all but just reachable: there both ends move with the square root of the
    inputs' rounding.
    """
    if downtime_at is not None:
        inputs_at = with_downtime(inputs, downtime_at)
    if inputs.mtbf_s is None:
        return _without_faults(inputs, inputs_at)
    available = inputs.available
    period_s, lost = choice(inputs, inputs.mtbf_s)
    always = fixed(inputs, inputs.mtbf_s)
    interval = _interval(inputs, inputs.mtbf_s, period_s, lost, log_ratio(available, inputs.target) - always)
    return ModelPlan(
        model=MODEL,
        period_s=period_s,
        work_s=period_s - inputs.save_stall_s,
        ettr_max=available * math.exp(-lost - always),
        feasible=interval is not None,
        interval_s=interval,
        shares=shares_at(inputs, period_s),
        limits=_limits(inputs, inputs_at),
    )


def _limits(inputs: Inputs, inputs_at: InputsAt | None) -> Limits:
    return Limits(
        save_stall_s=stall_limit(inputs),
        recovery_s=recovery_limit(inputs),
        mtbf_s=mtbf_limit(inputs, inputs_at),
    )


def _interval(inputs: Inputs, mtbf_s: float, period_s: float, lost: float, budget: float) -> tuple[float, float] | None:
    """Return the periods that keep the target; one point where rounding alone would decide whether there are any."""
    spare = budget - lost
    if abs(spare) <= _TANGENT * budget / 2 + _ROUNDING * (1.0 + abs(budget) + fixed(inputs, mtbf_s)):
        return period_s, period_s
    if spare < 0:
        return None
    low, high = (x * mtbf_s for x in _ends(inputs.save_stall_s / mtbf_s, budget))
    if inputs.tiers and low < inputs.slowest_s:
        low, high = tiers.ends(inputs.tiers, inputs.save_stall_s, mtbf_s, period_s, budget, (low, high))
    return min(max(low, inputs.drain_s), period_s), max(high, period_s)


def _ends(stall: float, budget: float) -> tuple[float, float]:
    """Return both roots x = lambda tau of x - g (e^x - 1) = lambda O, with g = e^-budget.

    Around x = budget, where the left side is largest, they are budget - y and budget + t with excess(y) = excess(-t);
    two steps of Newton's method give a small lower end its digits back.
    """
    spare = max(0.0, excess(budget) - stall)
    high = budget + rising(spare)
    if stall == 0.0:
        return 0.0, high
    low = max(budget - falling(spare), stall)
    g, complement = math.exp(-budget), -math.expm1(-budget)
    for _ in range(2):
        slope = complement - g * math.expm1(low)
        if slope > 0:
            low -= (complement * low - g * excess(-low) - stall) / slope
    return low, high


def _without_faults(inputs: Inputs, inputs_at: InputsAt | None) -> ModelPlan:
    """The longer the period the better: the rate comes as near to what is available as one likes."""
    available, target = inputs.available, inputs.target
    interval: tuple[float, float | None] | None = None
    if available > target:
        interval = max(inputs.save_stall_s * available / (available - target), inputs.drain_s), None
    elif available == target and inputs.save_stall_s == 0:
        interval = inputs.drain_s, None
    return ModelPlan(
        model=MODEL,
        period_s=None,
        work_s=None,
        ettr_max=available,
        feasible=interval is not None,
        interval_s=interval,
        shares=_with_stops(inputs, available, 0.0, 0.0, 0.0, 0.0),
        limits=_limits(inputs, inputs_at),
    )


def _with_stops(
    inputs: Inputs, useful: float, saving: float, rollback: float, recovery: float, downtime: float
) -> Shares:
    """Add the time that the cluster does not run and the time of planned stops."""
    downtime += 1.0 - inputs.cluster_availability
    stops = inputs.cluster_availability * inputs.planned_stops_per_s
    if not stops:
        return Shares(useful, saving, rollback, recovery, downtime)
    ratio = min(inputs.recovery_s / inputs.mtbf_s, 700.0) if inputs.mtbf_s is not None else 0.0
    restored_s = inputs.mtbf_s * math.expm1(ratio) if inputs.mtbf_s is not None else inputs.recovery_s
    return Shares(
        useful,
        saving,
        rollback,
        recovery + stops * restored_s,
        downtime + stops * inputs.stop_downtime_s * math.exp(ratio),
    )
