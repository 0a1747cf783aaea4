"""How does a copy lag behind that takes longer to drain than the time between two saves?

A class of faults, a share q of all, needs the tier with the drain d. A tier that cannot follow every save copies back
to back, so that its copies are max(tau, d) apart. With lambda_c = q lambda and G(x) = x/(e^x - 1) the exact rate is

    E(tau) = (w/tau) G(lambda tau) e^(-lambda R) / (1 + lambda D)
             * product over the tiers of e^(-lambda_c d) G(lambda_c max(tau, d)) / G(lambda_c tau)

One tier that every fault needs, at a period not below its drain, makes it the exact model; below its drain the rate
falls. Several tiers are taken as independent: within a few tenths of a point of a simulation. All losses here are -ln
of a share of time, in units of 1/lambda where they are called x. Source: own.
"""

import math
from collections.abc import Callable, Sequence

from reliability.domain.planner.roots import climbed, log_growth, log_growth_bend, log_growth_slope

Tiers = Sequence[tuple[float, float]]
"""Pairs (share of the faults, drain), the drain in seconds or in units of 1/lambda."""

_ENOUGH = 1e-15


def behind(tiers: Tiers, mtbf_s: float, period_s: float) -> float:
    """Return the loss to copies that cannot follow every save, beyond the drains themselves; 0 where all can."""
    return _behind([(share, drain_s / mtbf_s) for share, drain_s in tiers], period_s / mtbf_s)


def behind_slope_s(tiers: Tiers, mtbf_s: float, period_s: float) -> float:
    """Return how fast `behind` grows with the rate of faults, in seconds."""
    return math.fsum(
        share * drain_s * log_growth_slope(share * drain_s / mtbf_s)
        - share * period_s * log_growth_slope(share * period_s / mtbf_s)
        for share, drain_s in tiers
        if drain_s > period_s
    )


def best(tiers: Tiers, stall_s: float, mtbf_s: float, least_s: float) -> tuple[float, float]:
    """Return the best period in seconds, and the loss at it, where it lies between `least_s` and the longest drain.

    The slope of the loss, h(x) - o/(x (x - o)) with o = lambda O and h that of what faults undo, rises with x and
    jumps up at each drain.
    """
    scaled, stall, least = _scaled(tiers, mtbf_s), stall_s / mtbf_s, least_s / mtbf_s
    if stall == 0.0:
        return 0.0, _behind(scaled, 0.0)

    def slope(x: float, late: Tiers) -> tuple[float, float]:
        h, bend = _undone_slopes(x, late)
        room = x - stall
        return h * x * room - stall, bend * x * room + h * (x + room)

    x = _rising_root(slope, scaled, least, lambda late: math.sqrt(2 * stall / max(1 - _share(late), 1e-300)))
    return x * mtbf_s, _loss(scaled, stall, x)


def most_stall(tiers: Tiers, mtbf_s: float, budget: float) -> float | None:
    """Return the longest stall in seconds with which some period loses no more than the budget; None if none does.

    The largest x (1 - e^(g(x) - budget)), g the loss to what faults undo: where 1 = e^(g - budget) (1 + x g'(x)).
    """
    scaled = _scaled(tiers, mtbf_s)
    if _behind(scaled, 0.0) > budget:
        return None

    def falls(x: float, late: Tiers) -> tuple[float, float]:
        h, bend = _undone_slopes(x, late)
        value = log_growth(x) + _behind(late, x) - budget + math.log1p(x * h)
        return value, h + (h + x * bend) / (1 + x * h)

    def first_order(late: Tiers) -> float:
        left = budget - math.fsum(share * drain for share, drain in late) / 2
        return left / max(1 - _share(late), 1e-300)

    x = _rising_root(falls, scaled, 0.0, first_order)
    return max(0.0, -x * math.expm1(log_growth(x) + _behind(scaled, x) - budget)) * mtbf_s


def ends(
    tiers: Tiers, stall_s: float, mtbf_s: float, period_s: float, budget: float, outer_s: tuple[float, float]
) -> tuple[float, float]:
    """Return the periods around the best one, in seconds, at which the loss is the budget.

    `outer_s`: the same without tiers that lag, which lie further out.
    """
    scaled, stall, middle = _scaled(tiers, mtbf_s), stall_s / mtbf_s, period_s / mtbf_s
    low, high = outer_s[0] / mtbf_s, outer_s[1] / mtbf_s

    def beyond(x: float) -> tuple[float, float]:
        slope = _undone_slopes(x, [tier for tier in scaled if tier[1] > x])[0]
        return _loss(scaled, stall, x) - budget, slope - (stall / x / (x - stall) if stall else 0.0)

    def below(frequency: float) -> tuple[float, float]:
        x = 1 / frequency
        value, slope = beyond(x)
        return value, -slope * x * x

    slowest = scaled[0][1]
    if high < slowest:
        high = climbed(beyond, middle, high, high, _ENOUGH)
    if stall == 0.0:
        low = middle
    elif low < slowest:
        low = 1 / climbed(below, 1 / middle, 1 / low, 1 / low, _ENOUGH)
    return low * mtbf_s, high * mtbf_s


def _scaled(tiers: Tiers, mtbf_s: float) -> list[tuple[float, float]]:
    """The drains in units of 1/lambda, the longest first."""
    return sorted(((share, drain_s / mtbf_s) for share, drain_s in tiers), key=lambda tier: -tier[1])


def _share(tiers: Tiers) -> float:
    return math.fsum(share for share, _ in tiers)


def _behind(tiers: Tiers, x: float) -> float:
    lost = 0.0
    for share, drain in tiers:
        if drain > x:
            lost += log_growth(share * drain) - log_growth(share * x)
    return lost


def _loss(tiers: Tiers, stall: float, x: float) -> float:
    if x <= stall:
        return math.inf if stall else _behind(tiers, 0.0)
    return log_growth(x) + _behind(tiers, x) - math.log1p(-stall / x)


def _undone_slopes(x: float, late: Tiers) -> tuple[float, float]:
    """Return the first and second derivative of what faults undo, when these tiers cannot follow every save."""
    slope, bend = log_growth_slope(x), log_growth_bend(x)
    for share, _ in late:
        slope -= share * log_growth_slope(share * x)
        bend -= share * share * log_growth_bend(share * x)
    return max(0.0, slope), bend


def _rising_root(
    rises: Callable[[float, Tiers], tuple[float, float]],
    scaled: Sequence[tuple[float, float]],
    least: float,
    guess: Callable[[Tiers], float],
) -> float:
    """Return where a function that rises between the drains and jumps up at each goes through 0, from the longest down.

    It gives its value and slope at x when the given tiers cannot follow every save.
    """
    high = scaled[0][1]
    for index, (_, drain) in enumerate(scaled):
        if drain <= least:
            break
        if drain < high:
            if rises(drain, scaled[:index])[0] < 0:
                least = drain
                break
            high = drain
        late = scaled[: index + 1]
        if rises(drain, late)[0] <= 0 and (index + 1 == len(scaled) or scaled[index + 1][1] < drain):
            return drain
    late = [tier for tier in scaled if tier[1] >= high]
    start = min(max(guess(late), least), high)
    return climbed(lambda x: rises(x, late), least, high, start, _ENOUGH)
