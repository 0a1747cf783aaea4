"""The two equations behind the exact model: y - 1 + e^-y = e, and a bracketed root for everything else.

Both are solved without the Lambert W function and keep full precision where its arguments almost cancel: with
`excess(y) = y - 1 + e^-y`, about y^2 / 2 for small y, `falling` and `rising` are its two inverses.
"""

import math
from collections.abc import Callable

_SMALL = 0.01
_ENOUGH = 4e-16
_ROUNDS = 200
_GOLDEN = (math.sqrt(5) - 1) / 2


def excess(y: float) -> float:
    """Return y - 1 + e^-y, with full relative precision around 0; at least 0, y >= -700."""
    if abs(y) < _SMALL:
        return y * y * (1 / 2 - y * (1 / 6 - y * (1 / 24 - y * (1 / 120 - y * (1 / 720 - y / 5040)))))
    return y + math.expm1(-y)


def falling(e: float) -> float:
    """Return the y >= 0 with excess(y) = e, for e >= 0.

    With m = e^-y this is the solution below 1 of m - 1 - ln m = e, so m = -W0(-e^(-1 - e)). Newton's method from a
    series in sqrt(2 e), or from e + 1 where e is large.
    """
    if e <= 0.0:
        return 0.0
    s = math.sqrt(2 * e)
    y = s + s * s / 6 + s**3 / 36 if e < 1 else e + 1 - math.exp(-1 - e)
    for _ in range(8):
        change = (excess(y) - e) / -math.expm1(-y)
        y -= change
        if abs(change) <= 1e-9 * y:
            break
    return y


def rising(e: float) -> float:
    """Return the t >= 0 with e^t - 1 - t = e, which is excess(-t) = e, for e >= 0.

    With z = e^t this is the solution above 1 of z - 1 - ln z = e, so z = -W-1(-e^(-1 - e)). Newton's method from a
    series in sqrt(2 e), or from ln(1 + e + ln(1 + e)) where e is large.
    """
    if e <= 0.0:
        return 0.0
    s = math.sqrt(2 * e)
    t = s - s * s / 6 + s**3 / 36 if e < 1 else math.log(1 + e + math.log1p(e))
    for _ in range(8):
        change = (excess(-t) - e) / math.expm1(t)
        t -= change
        if abs(change) <= 1e-9 * t:
            break
    return t


def log_growth(x: float) -> float:
    """Return ln((e^x - 1) / x) for x >= 0, about x / 2 for small x; no overflow."""
    if x < 1:
        return math.log1p(excess(-x) / x) if x > 0 else 0.0
    return x + math.log(-math.expm1(-x)) - math.log(x)


def log_growth_slope(x: float) -> float:
    """Return the derivative of `log_growth`, 1/(1 - e^-x) - 1/x for x >= 0; from 1/2 to 1."""
    return excess(x) / (x * -math.expm1(-x)) if x > 1e-150 else 0.5


def log_growth_bend(x: float) -> float:
    """Return the second derivative of `log_growth`, 1/x^2 - 1/(2 sinh(x/2))^2 for x >= 0; from 1/12 to 0."""
    if x < 0.1:
        return 1 / 12 - x * x * (1 / 240 - x * x / 6048)
    return 1 / x / x - (0.25 / math.sinh(x / 2) ** 2 if x < 700 else 0.0)


def climbed(
    rises: Callable[[float], tuple[float, float]], low: float, high: float, start: float, enough: float = _ENOUGH
) -> float:
    """Return where a rising function is 0 between two points; it gives its value and its slope.

    Newton's method, halving instead where that would leave the bracket or the function is flat; ends when a step is
    `enough` of the point.
    """
    x = start
    for _ in range(_ROUNDS):
        value, slope = rises(x)
        low, high = (x, high) if value <= 0 else (low, x)
        before, x = x, x - value / slope if slope else math.nan
        if not low <= x <= high:
            x = (low + high) / 2
        if abs(x - before) <= enough * x:
            break
    return x


def crossing(falls: Callable[[float], float], guess: float) -> float | None:
    """Return the x > 0 at which a falling function goes through 0; None when it does not between 1e-120 and 1e120.

    Brackets it by factors of 16 from the guess, then takes inverse quadratic steps where three points allow one and the
    middle where they do not; exact to a few units in the last place, from the side where the function is at least 0.
    Source: Chandrupatla 1997, "A new hybrid quadratic/bisection algorithm", Advances in Engineering Software 28.
    """
    bracket = _bracket(falls, guess)
    if bracket is None:
        return None
    newest, other = bracket
    share = 0.5
    for _ in range(_ROUNDS):
        x = newest[0] + share * (other[0] - newest[0])
        tried = (x, falls(x))
        left, other = (newest, other) if (tried[1] >= 0) is (newest[1] >= 0) else (other, newest)
        newest = tried
        least = 2 * _ENOUGH * abs(x) / abs(other[0] - newest[0])
        if least > 0.5 or newest[1] == 0.0:
            break
        share = min(max(_quadratic(newest, other, left), least), 1 - least)
    return newest[0] if newest[1] >= 0 else other[0]


def _quadratic(newest: tuple[float, float], other: tuple[float, float], left: tuple[float, float]) -> float:
    """Return how far on the way from the newest to the other point the quadratic is 0; half of it where none serves."""
    (x1, f1), (x2, f2), (x3, f3) = newest, other, left
    if not math.isfinite(f1) or not math.isfinite(f2) or not math.isfinite(f3) or f3 in (f1, f2):
        return 0.5
    place, height = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
    if height * height >= place or (1 - height) * (1 - height) >= 1 - place:
        return 0.5
    return f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)


def _bracket(falls: Callable[[float], float], guess: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return two points with their values, the first at least 0 and the second below."""
    x = min(max(guess, 1e-100), 1e100)
    value = falls(x)
    factor = 16.0 if value >= 0 else 1 / 16.0
    while 1e-120 < x < 1e120:
        other = x * factor
        there = falls(other)
        if (there >= 0) is not (value >= 0):
            return ((x, value), (other, there)) if value >= 0 else ((other, there), (x, value))
        x, value = other, there
    return None


def summit(function: Callable[[float], float], low: float, high: float, width: float) -> float:
    """Return where a function with one maximum is largest between two points, to within a width.

    Parabolas through the three best points, golden sections where a parabola leads nowhere.
    Source: Brent 1973, "Algorithms for Minimization without Derivatives", chapter 5.
    """
    best = second = third = _valued(function, low + (1 - _GOLDEN) * (high - low))
    step = before = 0.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if abs(best[0] - middle) <= width - (high - low) / 2:
            break
        leap = _leap(best, second, third) if abs(before) > width / 2 else math.nan
        if abs(leap) < abs(before) / 2 and low < best[0] + leap < high:
            step, before = leap, step
            if min(best[0] + leap - low, high - best[0] - leap) < width:
                step = math.copysign(width / 2, middle - best[0])
        else:
            before = (low if best[0] >= middle else high) - best[0]
            step = (1 - _GOLDEN) * before
        tried = _valued(function, best[0] + math.copysign(max(abs(step), width / 2), step))
        outer, inner = (best, tried) if tried[1] >= best[1] else (tried, best)
        low, high = (outer[0], high) if outer[0] < inner[0] else (low, outer[0])
        best, second, third = _ranked(tried, best, second, third)
    return best[0]


def _valued(function: Callable[[float], float], x: float) -> tuple[float, float]:
    return x, function(x)


def _leap(best: tuple[float, float], second: tuple[float, float], third: tuple[float, float]) -> float:
    """Return how far from the best point the parabola through three points has its summit; NaN when it has none."""
    left = (best[0] - second[0]) * (best[1] - third[1])
    right = (best[0] - third[0]) * (best[1] - second[1])
    bend = 2 * (right - left)
    return -((best[0] - third[0]) * right - (best[0] - second[0]) * left) / bend if bend else math.nan


def _ranked(
    tried: tuple[float, float], best: tuple[float, float], second: tuple[float, float], third: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Return the three points to go on with, the best one first; points that are still the same one make room."""
    if tried[1] >= best[1]:
        return tried, best, second
    if tried[1] >= second[1] or second[0] == best[0]:
        return best, tried, second
    if tried[1] >= third[1] or third[0] in (best[0], second[0]):
        return best, second, tried
    return best, second, third


def least_whole(enough: Callable[[int], bool], start: int) -> int:
    """Return the least count that is enough, enough being false below it and true from it on; near start, if it can."""
    low, high, width = -1, max(0, start), 1
    while not enough(high):
        low, high, width = high, high + width, 2 * width
    if low < 0:
        width = 1
        while (below := high - width) >= 0 and enough(below):
            high, width = below, 2 * width
        low = max(-1, below)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
