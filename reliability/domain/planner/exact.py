"""Which period is best, and what does it give, when faults strike at random times (the default model)?

Faults come with the rate lambda = 1 / mtbf_s and strike work, stalls and recoveries alike. A fault in a recovery costs
the downtime and begins the recovery again, one in a stall loses the work since the save before. A kept stretch of work
w with its stall O then takes (1/lambda + D) e^(lambda (R + d)) (e^(lambda tau) - 1) on average, tau = w + O, so that

    E(tau) = lambda w e^(-lambda (R + d)) / ((1 + lambda D) (e^(lambda tau) - 1))

with the recovery R, the downtime D and the drain d. All of it is exact, in closed form but for `roots`, and holds for
every lambda O: exponents are kept as logarithms, so that nothing overflows and a rate too small to write is 0.

Source: for D = d = 0 Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps".
"""

import math
from collections.abc import Callable

from reliability.domain.planner.inputs import LEAST_MTBF_S, Inputs, available_share, check_period
from reliability.domain.planner.results import Limits, ModelPlan, Shares
from reliability.domain.planner.roots import crossing, excess, falling, log_growth, rising

MODEL = "exact_exponential"
DowntimeAt = Callable[[float], float]

_TANGENT = 1e-12
_ROUNDING = 1e-15
_NO_STALL_S = 1e-200
_LEAST = 1e-300


def ettr_at(inputs: Inputs, period_s: float) -> float:
    """Return the effective training rate E(tau) times the share of time that is available; from 0 to 1.

    period_s: start to start, seconds; 0 only where a save takes no time. A period below the stall leaves no time for
    work, so 0; one below the drain counts as if drains could overlap. Raises InvalidInput for any other period.
    """
    check_period(inputs, period_s)
    if period_s <= inputs.save_stall_s and period_s > 0:
        return 0.0
    rate = inputs.available * (1.0 - inputs.save_stall_s / period_s if period_s else 1.0)
    if inputs.mtbf_s is None:
        return rate
    lost = log_growth(period_s / inputs.mtbf_s) + (inputs.recovery_s + inputs.drain_s) / inputs.mtbf_s
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
    lost = log_growth(period_s / mtbf_s) + inputs.drain_s / mtbf_s
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
    period_s, lost = _choice(inputs.save_stall_s, inputs.mtbf_s, inputs.drain_s)
    return period_s, inputs.available * math.exp(-lost - _fixed(inputs, inputs.mtbf_s))


def plan(inputs: Inputs, *, downtime_at: DowntimeAt | None = None) -> ModelPlan:
    """Return the best period, what it gives, the periods that keep the target, and the limits of each input alone.

    `downtime_at` gives the downtime in seconds for a rate of faults per second, where standbys make it depend on
    that; it counts for the limit of the time between faults only. Times are accurate to 1e-9 of their size, except
    where the target is all but just reachable: there both ends move with the square root of the inputs' rounding.
    """
    if inputs.mtbf_s is None:
        return _without_faults(inputs, downtime_at)
    mtbf_s = inputs.mtbf_s
    available = inputs.available
    period_s, lost = _choice(inputs.save_stall_s, mtbf_s, inputs.drain_s)
    fixed = _fixed(inputs, mtbf_s)
    budget = _log_ratio(available, inputs.target) - fixed
    interval = _interval(inputs, mtbf_s, period_s, lost, budget)
    return ModelPlan(
        model=MODEL,
        period_s=period_s,
        work_s=period_s - inputs.save_stall_s,
        ettr_max=available * math.exp(-lost - fixed),
        feasible=interval is not None,
        interval_s=interval,
        shares=shares_at(inputs, period_s),
        limits=Limits(
            save_stall_s=_stall_limit(budget, mtbf_s, inputs.drain_s),
            recovery_s=_recovery_limit(inputs, mtbf_s, lost),
            mtbf_s=_mtbf_limit(inputs, downtime_at),
        ),
    )


def stall_limit(inputs: Inputs) -> float | None:
    """Return the longest stall in seconds with which the target is reachable, None when none is or without faults.

    O = (g - 1 - ln g)/lambda with g = E* e^(lambda (R + d)) (1 + lambda D) for g < 1; with the period at the drain,
    where that is longer, O = d - g (e^(lambda d) - 1)/lambda.
    """
    if inputs.mtbf_s is None:
        return None
    budget = _log_ratio(inputs.available, inputs.target) - _fixed(inputs, inputs.mtbf_s)
    return _stall_limit(budget, inputs.mtbf_s, inputs.drain_s)


def recovery_limit(inputs: Inputs) -> float | None:
    """Return the longest recovery in seconds with which the target is reachable, None when none is or nothing limits.

    R = ln(m / (E* (1 + lambda D)))/lambda - d. With planned stops, which need the recovery too, it is
    ln(q)/lambda with q = A K (1 + nu/lambda) / (E* + A K nu (1/lambda + D)), K the best rate with R = 0 and A = 1.
    """
    if inputs.mtbf_s is not None:
        return _recovery_limit(inputs, inputs.mtbf_s, _choice(inputs.save_stall_s, inputs.mtbf_s, inputs.drain_s)[1])
    if not inputs.planned_stops_per_s:
        return None
    limit = (1.0 - inputs.target / inputs.cluster_availability) / inputs.planned_stops_per_s - inputs.downtime_s
    return limit if 0.0 <= limit < math.inf else None


def _log_ratio(larger: float, smaller: float) -> float:
    """Return ln(larger / smaller) without losing digits where they are nearly equal."""
    ratio = (larger - smaller) / smaller
    return math.log1p(ratio) if -0.5 < ratio < 1.0 else math.log(larger) - math.log(smaller)


def _fixed(inputs: Inputs, mtbf_s: float) -> float:
    """-ln of what a fault costs whatever the period is: lambda (R + d) + ln(1 + lambda D)."""
    return (inputs.recovery_s + inputs.drain_s) / mtbf_s + math.log1p(inputs.downtime_s / mtbf_s)


def _choice(stall_s: float, mtbf_s: float, drain_s: float) -> tuple[float, float]:
    """Return the best period not below the drain and -ln of the rate that saving and rollback leave at it."""
    y = falling(stall_s / mtbf_s)
    period_s = stall_s - mtbf_s * math.expm1(-y)
    if period_s >= drain_s:
        return period_s, y
    return drain_s, log_growth(drain_s / mtbf_s) - math.log1p(-stall_s / drain_s)


def _interval(inputs: Inputs, mtbf_s: float, period_s: float, lost: float, budget: float) -> tuple[float, float] | None:
    """Return the periods that keep the target; one point where rounding alone would decide whether there are any."""
    spare = budget - lost
    if abs(spare) <= _TANGENT * budget / 2 + _ROUNDING * (1.0 + abs(budget) + _fixed(inputs, mtbf_s)):
        return period_s, period_s
    if spare < 0:
        return None
    low, high = _ends(inputs.save_stall_s / mtbf_s, budget)
    return min(max(low * mtbf_s, inputs.drain_s), period_s), max(high * mtbf_s, period_s)


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


def _stall_limit(budget: float, mtbf_s: float, drain_s: float) -> float | None:
    if budget < 0:
        return None
    x = drain_s / mtbf_s
    if x <= budget:
        return mtbf_s * excess(budget)
    if x > budget + 1 + math.log1p(budget):
        return None
    limit = -math.expm1(-budget) * x - math.exp(-budget) * excess(-x)
    return mtbf_s * limit if limit >= 0 else None


def _recovery_limit(inputs: Inputs, mtbf_s: float, lost: float) -> float | None:
    stops, downtime_s = inputs.planned_stops_per_s, inputs.downtime_s
    other = lost + inputs.drain_s / mtbf_s + math.log1p(downtime_s / mtbf_s)
    left = _log_ratio(inputs.cluster_availability, inputs.target) - other
    if stops:
        left += math.log1p(-stops * downtime_s)
    if left < 0:
        return 0.0 if left > -_ROUNDING else None
    if not stops:
        return mtbf_s * left
    stopped = inputs.cluster_availability * math.exp(-other) * stops * (mtbf_s + downtime_s)
    return mtbf_s * math.log1p(math.expm1(min(left, 700.0)) * inputs.target / (inputs.target + stopped))


def _mtbf_limit(inputs: Inputs, downtime_at: DowntimeAt | None) -> float | None:
    """Return the shortest mean time between faults with which the target is reachable: E falls with the rate."""
    never = available_share(inputs, None, inputs.recovery_s, inputs.downtime_s)
    if never <= inputs.target:
        return None
    if downtime_at is not None or inputs.planned_stops_per_s:
        return _searched_mtbf_limit(inputs, downtime_at)
    stall_s, drain_s = inputs.save_stall_s, inputs.drain_s
    if stall_s + drain_s + inputs.recovery_s + inputs.downtime_s == 0:
        return None
    budget = _log_ratio(never, inputs.target)
    unit_s = max(stall_s, _NO_STALL_S)
    y = _limit_in_y(unit_s, inputs.recovery_s + drain_s, inputs.downtime_s, budget)
    mtbf_s = unit_s / excess(y)
    if mtbf_s < LEAST_MTBF_S:
        return None
    if stall_s - mtbf_s * math.expm1(-y) >= drain_s:
        return mtbf_s
    return _searched_mtbf_limit(inputs, None, guess=1 / mtbf_s)


def _limit_in_y(stall_s: float, fixed_s: float, downtime_s: float, budget: float) -> float:
    """Solve y + lambda (R + d) + ln(1 + lambda D) = budget with lambda O = excess(y) for y.

    Newton's method from below, kept between the first-order start and the budget.
    """
    exposed, down = fixed_s / stall_s, downtime_s / stall_s
    low, high = 2 * budget / (1 + math.sqrt(1 + 2 * (exposed + down) * budget)), budget
    y = low
    for _ in range(60):
        e = excess(y)
        value = y + exposed * e + math.log1p(down * e) - budget
        low, high = (y, high) if value <= 0 else (low, y)
        change = value / (1 - math.expm1(-y) * (exposed + down / (1 + down * e)))
        before, y = y, y - change
        if not low <= y <= high:
            y = (low + high) / 2
        if abs(y - before) <= _ROUNDING * y:
            break
    return y


def _searched_mtbf_limit(inputs: Inputs, downtime_at: DowntimeAt | None, guess: float | None = None) -> float | None:
    """Return the limit where the drain, planned stops or standbys leave no closed form."""
    target, fixed_s = inputs.target, inputs.recovery_s + inputs.drain_s

    def spare(faults_per_s: float) -> float:
        mtbf_s = 1.0 / faults_per_s
        downtime_s = inputs.downtime_s if downtime_at is None else downtime_at(faults_per_s)
        available = available_share(inputs, mtbf_s, inputs.recovery_s, downtime_s)
        _, lost = _choice(inputs.save_stall_s, mtbf_s, inputs.drain_s)
        return (
            _log_ratio(max(available, _LEAST), target)
            - lost
            - fixed_s * faults_per_s
            - math.log1p(downtime_s * faults_per_s)
        )

    total_s = inputs.save_stall_s + fixed_s + inputs.downtime_s
    limit = crossing(spare, guess or inputs.faults_per_s or 1.0 / (total_s or 1.0))
    return None if limit is None else 1.0 / limit


def _without_faults(inputs: Inputs, downtime_at: DowntimeAt | None) -> ModelPlan:
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
        limits=Limits(save_stall_s=None, recovery_s=recovery_limit(inputs), mtbf_s=_mtbf_limit(inputs, downtime_at)),
    )


def _with_stops(
    inputs: Inputs, useful: float, saving: float, rollback: float, recovery: float, downtime: float
) -> Shares:
    """Add the time that the cluster does not run and the time of planned stops."""
    downtime += 1.0 - inputs.cluster_availability
    stops = inputs.cluster_availability * inputs.planned_stops_per_s
    if not stops:
        return Shares(useful, saving, rollback, recovery, downtime)
    ratio = inputs.recovery_s / inputs.mtbf_s if inputs.mtbf_s is not None else 0.0
    restored_s = inputs.mtbf_s * math.expm1(ratio) if inputs.mtbf_s is not None else inputs.recovery_s
    return Shares(
        useful,
        saving,
        rollback,
        recovery + stops * restored_s,
        downtime + stops * inputs.downtime_s * math.exp(ratio),
    )
