"""How large is a tail of the gamma distribution, and where does it begin?

The regularised incomplete gamma functions and their inverse, to better than 1e-10 relative for shapes from 0.01 to 1e6
and usable far beyond, with the standard library alone. Rates of faults, Poisson tails and Weibull integrals need them.
"""

import math
from statistics import NormalDist

from reliability.errors import InvalidInput

_UNIFORM_FROM = 1e4
"""Shapes from here on use the expansion that is uniform in x; below, the series and the fraction are short enough."""
_STIRLING_FROM = 10.0
_ROUNDS = 10_000
_EPSILON = 1e-17


def _expansion(terms: int = 24) -> list[list[float]]:
    """Return d[k][n] of Temme's expansion: the sum of d[k][n] eta^n / shape^k over n and k = 0, 1, 2."""
    alpha = [0.0, 1.0]
    for n in range(2, terms + 2):
        mixed = sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))
        alpha.append((alpha[n - 1] - mixed) / (n + 1))
    first = [-1 / 3] + [(n + 2) * alpha[n + 2] for n in range(1, terms)]
    rows = [first]
    for reciprocal_gamma in (-1 / 12, 1 / 288):
        before = rows[-1]
        rows.append([reciprocal_gamma * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)])
    return rows


_COEFFICIENTS = _expansion()


def _above_tangent(mu: float, ratio: float) -> float:
    """Return mu - ln(1 + mu) without cancellation; ratio is 1 + mu."""
    if abs(mu) < 0.01:
        return mu * mu * sum((-mu) ** n / (n + 2) for n in range(9))
    return mu - (math.log1p(mu) if mu > -0.5 else math.log(ratio))


def log_poisson(count: float, mean: float) -> float:
    """Return ln( mean^count e^-mean / Gamma(count + 1) ), -inf where that is 0; count >= 0 need not be whole.

    Stays accurate for counts of millions, where these three terms would cancel.
    Source: the saddle-point form of Loader 2000, "Fast and accurate computation of binomial probabilities".
    """
    if mean <= 0:
        return 0.0 if count == 0 else -math.inf
    if count < _STIRLING_FROM:
        return count * math.log(mean) - mean - math.lgamma(count + 1)
    ratio = mean / count
    if ratio == 0 or math.isinf(ratio):
        return -math.inf
    stirling = 0.0
    for coefficient in (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        stirling = coefficient + stirling / (count * count)
    exponent = count * _above_tangent((mean - count) / count, ratio)
    return -exponent - stirling / count - 0.5 * math.log(2 * math.pi * count)


def gamma_p(shape: float, x: float) -> float:
    """Return P(shape, x) = 1/Gamma(shape) * integral of t^(shape-1) e^-t from 0 to x.

    It is the probability that a gamma variable of that shape and scale 1 is at most x, and, for a whole shape n, that
    a Poisson variable of mean x is n or more. Both arguments have no unit. Raises InvalidInput unless shape is finite
    and above 0 and x is 0 or more. Source: DLMF 8.11.4 (series), 8.9.2 (fraction), 8.12 (large shapes).
    """
    return _tails(shape, x)[0]


def gamma_q(shape: float, x: float) -> float:
    """Return Q(shape, x) = 1 - P(shape, x), accurate also where it is tiny. Errors and sources as of gamma_p."""
    return _tails(shape, x)[1]


def _tails(shape: float, x: float) -> tuple[float, float]:
    if not (math.isfinite(shape) and shape > 0):
        raise InvalidInput("shape", f"{shape} is not a shape of a gamma distribution", hint="Give a number above 0.")
    if not x >= 0:
        raise InvalidInput("x", f"{x} is below 0 or not a number", hint="Give 0 or more.")
    if x == 0:
        return 0.0, 1.0
    if math.isinf(x):
        return 1.0, 0.0
    if shape >= _UNIFORM_FROM:
        return _uniform(shape, x)
    if x < shape + 1:
        lower = _series(shape, x)
        return lower, 1.0 - lower
    upper = _fraction(shape, x)
    return 1.0 - upper, upper


def _series(shape: float, x: float) -> float:
    term = total = 1.0
    for n in range(1, _ROUNDS):
        term *= x / (shape + n)
        total += term
        if term < total * _EPSILON:
            break
    return min(1.0, math.exp(log_poisson(shape, x)) * total)


def _fraction(shape: float, x: float) -> float:
    """Evaluate the continued fraction of Q by the method of Lentz."""
    b = x + 1 - shape
    d = result = 1 / b
    c = math.inf
    for n in range(1, _ROUNDS):
        numerator = n * (shape - n)
        b += 2
        d = 1 / (b + numerator * d)
        c = b + numerator / c
        result *= c * d
        if abs(c * d - 1) < 2e-16:
            break
    return math.exp(log_poisson(shape, x)) * shape * result


def _uniform(shape: float, x: float) -> tuple[float, float]:
    """Both tails, large shapes. Source: Temme 1979, "The asymptotic expansion of the incomplete gamma functions"."""
    ratio = x / shape
    mu = (x - shape) / shape
    half_square = _above_tangent(mu, ratio) if ratio > 0 else math.inf
    if shape * half_square > 750:
        return (0.0, 1.0) if mu < 0 else (1.0, 0.0)
    eta = math.copysign(math.sqrt(2 * half_square), mu)
    correction = 0.0
    for row in reversed(_COEFFICIENTS):
        value = 0.0
        for coefficient in reversed(row):
            value = value * eta + coefficient
        correction = value + correction / shape
    correction *= math.exp(-shape * half_square) / math.sqrt(2 * math.pi * shape)
    scaled = eta * math.sqrt(shape / 2)
    lower, upper = 0.5 * math.erfc(-scaled) - correction, 0.5 * math.erfc(scaled) + correction
    return min(1.0, max(0.0, lower)), min(1.0, max(0.0, upper))


def gamma_quantile(shape: float, p: float) -> float:
    """Return the x with P(shape, x) = p, 0 < p < 1; 0.0 where x is below the smallest float.

    Newton's method in ln x on the logarithm of the smaller tail, inside a bracket. For a rate of shape events in an
    exposure of T seconds, divide by T. Raises InvalidInput for a bad shape or p.
    Source: own; the chi-square quantile with k degrees of freedom is 2 gamma_quantile(k / 2, p).
    """
    if not 0 < p < 1:
        raise InvalidInput("p", f"{p} is not a probability between 0 and 1", hint="Give a share such as 0.95.")
    _tails(shape, 1.0)
    power = (math.log(p) + math.lgamma(shape + 1)) / shape
    if power < -40:
        return math.exp(power)
    return math.exp(_solve(shape, p, _first_guess(shape, p, power)))


def _first_guess(shape: float, p: float, power: float) -> float:
    """Start from Wilson and Hilferty 1931, or from the leading power where that is no help (small shapes)."""
    root = 1 - 1 / (9 * shape) + NormalDist().inv_cdf(p) / (3 * math.sqrt(shape))
    return max(power, math.log(shape) + 3 * math.log(root)) if root > 0 else power


def _solve(shape: float, p: float, log_x: float) -> float:
    side, tail = (0, p) if p <= 0.5 else (1, 1.0 - p)
    direction = 1.0 - 2.0 * side
    low, high = -math.inf, math.inf
    for _ in range(200):
        value = _tails(shape, math.exp(log_x))[side]
        slope = shape * math.exp(log_poisson(shape, math.exp(log_x)))
        error = direction * math.log(value / tail) if value > 0 else -direction * math.inf
        if error > 0:
            high = log_x
        else:
            low = log_x
        step = error * value / slope if value > 0 and slope > 0 else math.copysign(1.0, error)
        following = log_x - max(-2.0, min(2.0, step))
        if not low <= following <= high:
            following = (low + high) / 2
        if abs(following - log_x) <= 1e-15 * max(1.0, abs(log_x)) or abs(step) * math.sqrt(shape) < 1e-9:
            return following
        log_x = following
    return log_x
