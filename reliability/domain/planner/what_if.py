"""What if faults are not as random as the model takes them, and how often does each tier get a copy?

Two views beside the answer, which neither changes: the same plan under laws of the time between faults that are not
exponential, and the first-order plan of each storage tier with the class of faults that needs it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reliability.domain.planner import exact, renewal
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.levels import mean_rollback
from reliability.domain.planner.renewal import HyperExponential, Law, Weibull
from reliability.domain.planner.request import Request
from reliability.errors import InvalidInput

_SHORT_LIVES, _SHORT = 0.3, 0.25
"""Of the mixed law: three in ten lives have a quarter of the mean."""


@dataclass(frozen=True, slots=True)
class UnderLaw:
    """What a law makes of the plan: the rate at its period, and the period that would be best, with its rate."""

    name: str
    ettr: float
    best_period_s: float
    best_ettr: float


@dataclass(frozen=True, slots=True)
class TierPlan:
    """How often a tier gets a copy, and what a fault that needs it undoes; seconds.

    fault_share: share of the faults that leave only copies of this tier or a safer one. every_s: start to start.
    """

    name: str
    fault_share: float
    drain_s: float
    every_s: float
    undone_s: float


def under_laws(inputs: Inputs, period_s: float) -> tuple[UnderLaw, ...]:
    """Return the rates of a period (seconds, start to start) when the clock of faults starts anew at each recovery.

    All laws have the mean of the inputs. Empty without faults, and for a period that is only the stall.
    """
    work_s = period_s - inputs.save_stall_s
    if inputs.mtbf_s is None or work_s <= 0:
        return ()
    best_s, best_ettr = exact.best(inputs)
    first = UnderLaw("at random (exponential), as planned", exact.ettr_at(inputs, period_s), best_s or 0.0, best_ettr)
    return first, *_others(inputs, inputs.mtbf_s, work_s)


def _others(inputs: Inputs, mtbf_s: float, work_s: float) -> Iterator[UnderLaw]:
    for name, law in _laws(mtbf_s):
        try:
            best = renewal.optimum(law, inputs)
            rate = renewal.ettr(law, work_s, inputs)
        except InvalidInput:
            continue
        yield UnderLaw(name, inputs.available * rate, best.period_s, inputs.available * best.ettr)


def _laws(mtbf_s: float) -> Iterator[tuple[str, Law]]:
    yield "early after a start (Weibull, shape 0.7)", Weibull(0.7, mtbf_s)
    yield "very early after a start (Weibull, shape 0.5)", Weibull(0.5, mtbf_s)
    yield "by wear (Weibull, shape 1.5)", Weibull(1.5, mtbf_s)
    long = (1.0 - _SHORT_LIVES * _SHORT) / (1.0 - _SHORT_LIVES)
    lives = ((_SHORT_LIVES, _SHORT * mtbf_s), (1.0 - _SHORT_LIVES, long * mtbf_s))
    yield "in good and bad phases (two exponential laws)", HyperExponential(lives)


def tiers(request: Request, period_s: float) -> tuple[TierPlan, ...]:
    """Return how often memory, SSD and storage get a copy when training saves at a period (seconds, start to start).

    A tier copies every save, or back to back where its drain takes longer. A fault undoes half a period of the tier
    that it needs, and the drain (`levels.mean_rollback`).
    """
    node_share, memory_share = request.shares
    found = (
        ("memory", max(0.0, 1.0 - node_share - memory_share), 0.0),
        ("SSD", memory_share, request.drain_ssd_s),
        ("storage", node_share, request.drain_s),
    )
    return tuple(
        TierPlan(name, share, drain_s, max(period_s, drain_s), mean_rollback(max(period_s, drain_s), drain_s))
        for name, share, drain_s in found
    )
