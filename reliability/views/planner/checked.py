"""Does a simulated run agree with the formula? One at a time in this process, since each takes a processor."""

from dataclasses import dataclass
from threading import Lock

from reliability.domain.planner.answer import Answer
from reliability.errors import ReliabilityError
from reliability.selectors.plan_trial import Trial, trial
from reliability.templatetags.stepkeeper import grouped
from reliability.views.planner.words import percent, spoken

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
    period_s = found.used_s
    if period_s is None or found.inputs.mtbf_s is None:
        return Simulated("There is nothing to simulate: without faults only saving costs time.", agrees=True)
    if not _turn.acquire(blocking=False):
        return Simulated("Another simulation is going on: try again in a few seconds.", busy=True)
    try:
        return _told(trial(found, period_s, failures=FAULTS, limit_s=LIMIT_S), period_s)
    except ReliabilityError as error:
        return Simulated(f"It cannot be simulated: {error.message}. {error.hint}")
    finally:
        _turn.release()


def _told(tried: Trial, period_s: float) -> Simulated:
    check, expected = tried.check, tried.planned_ettr
    apart = check.ettr - expected
    within = abs(apart) / check.se if check.se > 0 else 0.0
    agrees = within <= AGREES_SE or abs(apart) < max(1e-9, tried.good_to)
    sentence = (
        f"Simulated: {percent(check.ettr)} ± {100 * check.se:.3f} points at every {spoken(period_s)}; "
        f"the formula says {percent(expected)}."
    )
    detail = (
        f"{abs(apart) * 100:.3f} points {'above' if apart > 0 else 'below'} the formula, {within:.1f} standard errors; "
        f"{grouped(check.failures)} faults over {spoken(check.simulated_s)} of job time, in {spoken(check.seconds)}."
    )
    if tried.tiers:
        detail += (
            " Memory, SSD and storage were simulated, each with the faults that need its copy; for them the formula is "
            f"good to {100 * tried.good_to:.1f} points."
        )
    if tried.left_out:
        detail += f" Left out of both rates: {', '.join(tried.left_out)}."
    return Simulated(sentence, detail, agrees)
