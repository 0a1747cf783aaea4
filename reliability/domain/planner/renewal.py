"""What if the time between faults is not exponential?

The clock of the whole job starts anew with each recovery. With S the chance that a job lives longer than t, mu the
mean time to a fault, w the work and O the stall of one period, R recovery, d drain (with what tiers lag behind), D
downtime (all in seconds):
    rate = w * sum over k >= 1 of S( R + d + k (w + O) ) / (mu + D)
Exact for any such law. Of many nodes that are renewed one by one the exponential model stays the better description.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from reliability.domain.planner.inputs import MOST_S, check
from reliability.domain.planner.roots import summit
from reliability.domain.planner.special import gamma_q
from reliability.errors import InvalidInput

_LEAST_S = 1e-100
_FEW, _TERMS = 16, 128
_SMOOTH, _SMOOTH_FALL = 0.25, 4.0
"""How little of a hazard comes with one step, and how many steps a fall of survival takes, for a sum to be smooth."""
_GRID = 1.0
"""Step of the first search in ln work; one law may have two maxima, which lie further apart."""
_SHORTEST = 1e-4
"""Where the first search begins, as a share of the first-order best; far below it only where faults leave nothing."""
_WORK_TOLERANCE = 2e-6


class Law(Protocol):
    """How long a job lives: what this module needs to know of it."""

    @property
    def mean_s(self) -> float:
        """Mean time to a fault in seconds."""

    def beyond(self, start_s: float) -> float:
        """Return the integral of the survival from start_s on, in seconds."""

    def summed(self, start_s: float, step_s: float) -> float:
        """Return the sum of the survival at start_s + step_s, start_s + 2 step_s, ..., step_s above 0."""


class Costs(Protocol):
    """The times of one save and one fault in seconds; the planner's Inputs are such, their mtbf_s is not read here."""

    @property
    def save_stall_s(self) -> float: ...
    @property
    def recovery_s(self) -> float: ...
    @property
    def downtime_s(self) -> float: ...
    @property
    def drain_s(self) -> float: ...
    def lag_s(self, period_s: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Weibull:
    """Survival exp( -(t / scale)^shape ), scale = mean / Gamma(1 + 1 / shape).

    A shape below 1: the longer the job has run, the longer it will. Shapes from 0.1 to 20, else InvalidInput.
    """

    shape: float
    mean_s: float

    def __post_init__(self) -> None:
        check("shape", self.shape, 0.1, 20.0, "Real logs give 0.6 to 0.9, 1 is exponential.")
        check("mean_s", self.mean_s, _LEAST_S, MOST_S, "Give the mean time between faults in seconds, above 0.")

    @property
    def scale_s(self) -> float:
        """The time that a share of 1/e survives."""
        return self.mean_s / math.gamma(1 + 1 / self.shape)

    def survival(self, t_s: float) -> float:
        """Return the chance to live longer than t_s seconds."""
        return math.exp(-self._hazard(t_s))

    def beyond(self, start_s: float) -> float:
        """Return the integral of the survival from start_s on: mean * Q(1 / shape, (start / scale)^shape)."""
        return self.mean_s * gamma_q(1 / self.shape, self._hazard(start_s))

    def summed(self, start_s: float, step_s: float) -> float:
        """Return the sum of the survival at start + k step, k >= 1, to about 1e-12 of it.

        Term by term; where the terms fall too slowly to end, the rest by the formula of Euler and Maclaurin, whose
        integral is known. It holds once survival changes little in a step, here and where it falls most.
        """
        if self.survival(start_s + step_s) == 0:
            return 0.0
        scale_s, shape, total, last_s = self.scale_s, self.shape, 0.0, start_s
        fewest = _FEW if scale_s >= _SMOOTH_FALL * shape * step_s else _TERMS
        for k in range(1, _TERMS + 1):
            last_s = start_s + k * step_s
            hazard = (last_s / scale_s) ** shape
            term = math.exp(-hazard)
            total += term
            if term <= 1e-18 * total:
                return total
            if k >= fewest and hazard * shape * step_s <= _SMOOTH * last_s:
                break
        return total + self._rest(last_s, step_s)

    def _rest(self, last_s: float, step_s: float) -> float:
        """Return the sum of the survival S at last + k step, k >= 1.

        That is integral / step - S/2 - step S'/12 + step^3 S'''/720 - step^5 S'''''/30240 + ...
        """
        survival, shape, ratio = self.survival(last_s), self.shape, step_s / last_s
        h1 = self._hazard(last_s) * shape * ratio
        h2 = h1 * (shape - 1) * ratio
        h3 = h2 * (shape - 2) * ratio
        h4 = h3 * (shape - 3) * ratio
        h5 = h4 * (shape - 4) * ratio
        third = -(h1**3) + 3 * h1 * h2 - h3
        even = 10 * h1 * h1 * (h1 * h2 - h3) - 15 * h1 * h2 * h2
        fifth = -(h1**5) + even + 10 * h2 * h3 + 5 * h1 * h4 - h5
        return self.beyond(last_s) / step_s + survival * (-0.5 + h1 / 12 + third / 720 - fifth / 30240)

    def _hazard(self, t_s: float) -> float:
        """Return (t / scale)^shape, at most so large that nothing survives it."""
        ratio = t_s / self.scale_s
        return math.exp(min(800.0, self.shape * math.log(ratio))) if ratio > 0 else 0.0


@dataclass(frozen=True, slots=True)
class HyperExponential:
    """A mix of exponential laws, given as (share, mean in seconds): some lives are short, some are long.

    The shares add to 1, else InvalidInput.
    """

    branches: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        for share, mean_s in self.branches:
            check("share", share, 0.0, 1.0, "Give a share between 0 and 1.")
            check("mean_s", mean_s, _LEAST_S, MOST_S, "Give the mean time between faults in seconds, above 0.")
        total = math.fsum(share for share, _ in self.branches)
        if abs(total - 1.0) > 1e-9:
            raise InvalidInput("share", f"the shares add to {total:g}", hint="Give shares that add to 1.")

    @property
    def mean_s(self) -> float:
        """The sum of share * mean."""
        return math.fsum(share * mean_s for share, mean_s in self.branches)

    def survival(self, t_s: float) -> float:
        """Return the chance to live longer than t_s seconds."""
        return math.fsum(share * math.exp(-t_s / mean_s) for share, mean_s in self.branches)

    def beyond(self, start_s: float) -> float:
        """Return the integral of the survival from start_s on."""
        return math.fsum(share * mean_s * math.exp(-start_s / mean_s) for share, mean_s in self.branches)

    def summed(self, start_s: float, step_s: float) -> float:
        """Return the sum of share e^(-start / mean) / (e^(step / mean) - 1)."""
        return math.fsum(
            share * math.exp(-(start_s + step_s) / mean_s) / -math.expm1(-step_s / mean_s)
            for share, mean_s in self.branches
        )


@dataclass(frozen=True, slots=True)
class RenewalOptimum:
    """The best work between saves and start-to-start period in seconds, and the effective training rate there."""

    work_s: float
    period_s: float
    ettr: float


def ettr(law: Law, work_s: float, costs: Costs) -> float:
    """Return the effective training rate of saving after each work_s seconds of work; no unit, 0 to 1.

    For a stall of 0 and no work between saves its limit, the integral of S from R + d on / (mu + D). Cluster
    availability and planned stops are not part of it. Raises InvalidInput for work that is negative or not finite.
    Source: renewal-reward; for Weibull lives see Bougeret et al. 2011, "Checkpointing strategies for parallel jobs".
    """
    check("work_s", work_s, 0.0, MOST_S, "Give seconds of work, 0 or more.")
    period_s = work_s + costs.save_stall_s
    start_s, cycle_s = costs.recovery_s + costs.lag_s(period_s), law.mean_s + costs.downtime_s
    if period_s == 0:
        return law.beyond(start_s) / cycle_s
    return min(1.0, work_s * law.summed(start_s, period_s) / cycle_s)


def optimum(law: Law, costs: Costs) -> RenewalOptimum:
    """Return the best work between saves, at least drain - stall so that drains do not overlap.

    A search over ln work in coarse steps, then by parabolas around the best; work to about 2e-6 relative where the
    curve is sharp enough to tell.
    """
    least_s = max(0.0, costs.drain_s - costs.save_stall_s)
    if costs.save_stall_s == 0:
        return RenewalOptimum(least_s, least_s, ettr(law, least_s, costs))

    def value(log_work: float) -> float:
        return ettr(law, math.exp(log_work), costs)

    typical_s = max(min(math.sqrt(2 * costs.save_stall_s) * math.sqrt(law.mean_s), law.mean_s), _LEAST_S)
    low = math.log(max(least_s, typical_s * _SHORTEST))
    high = max(low, math.log(law.mean_s)) + 3.0
    count = min(200, math.ceil((high - low) / _GRID))
    grid = [low + (high - low) * index / count for index in range(count + 1)]
    best = max(range(count + 1), key=lambda index: value(grid[index]))
    log_work = summit(value, grid[max(0, best - 1)], grid[min(count, best + 1)], _WORK_TOLERANCE)
    work_s = least_s if least_s and value(math.log(least_s)) >= value(log_work) else math.exp(log_work)
    return RenewalOptimum(work_s, work_s + costs.save_stall_s, ettr(law, work_s, costs))
