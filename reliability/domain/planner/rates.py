"""How often does the job really fail, given the few faults seen so far?

Faults in exposed time are a Poisson process, its rate has a gamma distribution (gamma-Poisson). Exposed time is the
time in which the job ran, including runs that were cancelled or came to their end without a fault. Zero faults never
mean a rate of zero. All times are seconds, all rates per second of the whole job unless a name says per node.
"""

import math
from dataclasses import dataclass

from reliability.domain.planner.inputs import MOST_S, check
from reliability.domain.planner.special import gamma_p, gamma_quantile
from reliability.domain.planner.values import DAY_S
from reliability.errors import InvalidInput

_LEAST = 1e-100
_MOST_FAULTS = 1e15


@dataclass(frozen=True, slots=True)
class Observed:
    """Faults that were counted in so many seconds of exposed time. Raises InvalidInput for what cannot be."""

    faults: int
    exposure_s: float

    def __post_init__(self) -> None:
        check("faults", self.faults, 0, _MOST_FAULTS, "Give the number of faults seen, 0 or more.")
        check("exposure_s", self.exposure_s, 0.0, MOST_S, "Give the seconds in which the job ran, 0 or more.")


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before looking: as if `shape` faults had been seen in `exposure_s` seconds."""

    shape: float
    exposure_s: float


JEFFREYS = Prior(shape=0.5, exposure_s=0.0)
"""The prior that prefers no unit of time: half a fault in no time at all. Source: Jeffreys 1946."""


def fleet_prior(nodes: int, per_node_day: float = 4e-3, shape: float = 1.0) -> Prior:
    """Return the prior of a job on so many nodes of an ordinary fleet: Gamma(shape, shape / (nodes * per_node_day)).

    Its mean is the fleet's rate and it weighs as much as `shape` faults. The default of 4 faults in 1000 node-days is
    between what RSC-2 and RSC-1 (2.34 and 6.50) and Llama 3 (3.79) tell. Raises InvalidInput for values not above 0.
    Source: Kokolis et al. 2025; Grattafiori et al. 2024.
    """
    for field, value in (("nodes", nodes), ("per_node_day", per_node_day), ("shape", shape)):
        check(field, value, _LEAST, MOST_S, "Give a number above 0.")
    return Prior(shape=shape, exposure_s=shape * DAY_S / (nodes * per_node_day))


@dataclass(frozen=True, slots=True)
class Posterior:
    """The rate after looking: a gamma distribution with this shape and, as its rate parameter, this exposure."""

    shape: float
    exposure_s: float

    @property
    def mean_per_s(self) -> float:
        """shape / exposure: the rate to plan with, since the first-order loss is linear in the rate."""
        return self.shape / self.exposure_s

    def quantile(self, p: float) -> float:
        """Return the rate per second that the true one is below with probability p, 0 < p < 1."""
        return gamma_quantile(self.shape, p) / self.exposure_s

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the credible interval of the rate per second, equal tails, for a level such as 0.9."""
        tail = _tail(level)
        return self.quantile(tail), self.quantile(1.0 - tail)

    def probability_below(self, rate_per_s: float) -> float:
        """Return P(rate <= rate_per_s | data); with the largest rate that allows a target: P(target attainable)."""
        return gamma_p(self.shape, max(0.0, rate_per_s) * self.exposure_s)

    def no_fault_probability(self, t_s: float) -> float:
        """Return the chance of no fault in the next t_s exposed seconds: (T / (T + t))^shape."""
        check("t_s", t_s, 0.0, MOST_S, "Give seconds, 0 or more.")
        return math.exp(-self.shape * math.log1p(t_s / self.exposure_s))


def posterior(observed: Observed, prior: Prior = JEFFREYS) -> Posterior:
    """Return the rate's distribution: Gamma(faults + prior.shape, exposure + prior.exposure).

    Raises InvalidInput when neither the prior nor the observation has any exposure: nothing is known then.
    Source: the conjugate pair of textbooks, for example Gelman et al., "Bayesian Data Analysis".
    """
    exposure_s = observed.exposure_s + prior.exposure_s
    check("exposure_s", exposure_s, _LEAST, MOST_S, "Give how long the job ran, above 0.")
    return Posterior(shape=observed.faults + prior.shape, exposure_s=exposure_s)


def garwood(observed: Observed, level: float = 0.9) -> tuple[float, float]:
    """Return the exact frequentist interval of the rate per second, to set beside the credible one.

    chi2(a/2; 2n) / 2T to chi2(1 - a/2; 2n + 2) / 2T with a = 1 - level; the lower end is 0 for n = 0.
    Raises InvalidInput without exposure. Source: Garwood 1936, "Fiducial limits for the Poisson distribution".
    """
    tail = _tail(level)
    check("exposure_s", observed.exposure_s, _LEAST, MOST_S, "Give how long the job ran, above 0.")
    low = gamma_quantile(observed.faults, tail) if observed.faults else 0.0
    return low / observed.exposure_s, gamma_quantile(observed.faults + 1, 1.0 - tail) / observed.exposure_s


def job_rate(common_per_s: float, node_per_s: float, nodes: int) -> float:
    """Return faults per second of a job on so many nodes: common + nodes * node.

    The common part (software, file system, operators) does not grow with the job; a rate of 0 for it is the naive
    scaling. Raises InvalidInput for negative values.
    """
    for field, value in (("common_per_s", common_per_s), ("node_per_s", node_per_s), ("nodes", nodes)):
        check(field, value, 0.0, MOST_S, "Give 0 or more.")
    return common_per_s + nodes * node_per_s


def node_rate(job_per_s: float, common_per_s: float, nodes: int) -> float:
    """Return faults per second and node, (job - common) / nodes, at least 0: the inverse of job_rate."""
    check("nodes", nodes, 1, MOST_S, "Give the number of nodes of the job.")
    return max(0.0, job_per_s - common_per_s) / nodes


@dataclass(frozen=True, slots=True)
class Split:
    """A job's rate in its two parts, both per second."""

    common_per_s: float
    node_per_s: float

    def job_rate(self, nodes: int) -> float:
        """Return the faults per second of a job on so many nodes."""
        return job_rate(self.common_per_s, self.node_per_s, nodes)


def split_common(first: tuple[int, Observed], second: tuple[int, Observed]) -> Split:
    """Return the common and the per-node part of the rate from what two job sizes, (nodes, observed), showed.

    The line through the two posterior means; where it would make a part negative, that part is 0 and the other is
    estimated from both together. Raises InvalidInput for equal sizes, sizes below 1 or no exposure.
    """
    (few, seen_few), (many, seen_many) = sorted((first, second), key=lambda pair: pair[0])
    if few < 1 or few == many:
        raise InvalidInput("nodes", f"{few} and {many} are not two sizes", hint="Give two different numbers of nodes.")
    rate_few, rate_many = posterior(seen_few).mean_per_s, posterior(seen_many).mean_per_s
    node = (rate_many - rate_few) / (many - few)
    common = rate_few - few * node
    faults = seen_few.faults + seen_many.faults
    if node < 0:
        return Split(posterior(Observed(faults, seen_few.exposure_s + seen_many.exposure_s)).mean_per_s, 0.0)
    if common < 0:
        node_s = few * seen_few.exposure_s + many * seen_many.exposure_s
        return Split(0.0, posterior(Observed(faults, node_s)).mean_per_s)
    return Split(common, node)


def _tail(level: float) -> float:
    if not 0 < level < 1:
        raise InvalidInput("level", f"{level} is not between 0 and 1", hint="Give a share such as 0.9.")
    return (1.0 - level) / 2
