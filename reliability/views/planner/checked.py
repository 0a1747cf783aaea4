"""Does a simulated run agree with the formula? One at a time in this process, since each takes a processor."""

from dataclasses import dataclass
from threading import Lock

from reliability import simulation
from reliability.domain import planner
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken
from reliability.errors import ReliabilityError
from reliability.simulation import Check
from reliability.views.planner.words import percent, shown_s

FAULTS = 100_000
LIMIT_S = 5.0
AGREES_SE = 4.0
_turn = Lock()


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the simulation says beside the formula."""

    sentence: str
    detail: str = ""
    agrees: bool = False
    busy: bool = False


def simulated(found: Answer) -> Simulated:
    """Simulate the answer's period, unless another simulation is going on."""
    period_s = shown_s(found)
    if period_s is None:
        return Simulated("There is nothing to simulate: without faults and saves nothing is lost.", agrees=True)
    if not _turn.acquire(blocking=False):
        return Simulated("Another simulation is going on: try again in a few seconds.", busy=True)
    try:
        return _told(simulation.check(found.inputs, period_s, FAULTS, limit_s=LIMIT_S), found, period_s)
    except ReliabilityError as error:
        return Simulated(f"It cannot be simulated: {error.message}. {error.hint}")
    finally:
        _turn.release()


def _told(check: Check, found: Answer, period_s: float) -> Simulated:
    expected = planner.exact.ettr_at(found.inputs, period_s)
    apart = check.ettr - expected
    within = abs(apart) / check.se if check.se > 0 else 0.0
    agrees = within <= AGREES_SE or abs(apart) < 1e-9
    sentence = (
        f"Simulated: {percent(check.ettr)} ± {100 * check.se:.3f} points at every {spoken(period_s)}; "
        f"the formula says {percent(expected)}."
    )
    detail = (
        f"{apart * 100:+.3f} points apart, {within:.1f} standard errors; {check.failures} faults over "
        f"{spoken(check.simulated_s)} of job time, in {spoken(check.seconds)}."
    )
    return Simulated(sentence, detail, agrees)
