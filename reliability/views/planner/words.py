"""How the planner's answer is told: the headline, what to improve first, and what is lost."""

from collections.abc import Sequence
from typing import Any

from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken as plain
from reliability.domain.planner.values import DAY_S
from reliability.models import Job
from reliability.templatetags.stepkeeper import grouped

NAMES = {
    "save_stall": "save stall",
    "recovery": "recovery",
    "downtime": "downtime",
    "drain": "drain",
    "fault_rate": "failure rate",
    "repair": "repair time",
    "standbys": "standbys",
}
STANDBYS = "standbys"
LEAST_TOLD = 1e-5
SMALL = 0.01
WORTH_TELLING = 5e-5
"""Half of a hundredth of a point: less is told as next to nothing."""
WORTH_CHANGING = 5e-4
"""A twentieth of a point: less is not worth another period."""
ROUND_FROM = 99.5
UNITS_S = {"min": 60.0, "h": 3600.0, "d": DAY_S}


def spoken(value_s: float) -> str:
    """Write a duration that no line break takes apart."""
    return plain(value_s).replace(" ", "\u00a0")


def steps(count: int) -> str:
    """Write a number of steps."""
    return f"{grouped(count)} step{'' if count == 1 else 's'}"


def number(value: float | None) -> str:
    """Write a plain number."""
    return "unknown" if value is None else f"{value:.6g}"


def percent(share: float | None, digits: int = 2) -> str:
    """Write a share as per cent, with more digits where it is next to nothing or next to all."""
    if share is None:
        return "unknown"
    edge = min(share, 1 - share)
    if 0 < edge < 0.5 * 10.0 ** -(digits + 2):
        if share < LEAST_TOLD:
            return f"under {100 * LEAST_TOLD:g}\u00a0%"
        return f"{100 * share:.3g}\u00a0%" if share < 0.5 else f"{100 * share:.6g}\u00a0%"
    return f"{100 * share:.{digits}f}\u00a0%"


def part(share: float) -> str:
    """Write what a part takes of all time: with two digits that count where it is small."""
    if share <= 0:
        return "0\u00a0%"
    if share < LEAST_TOLD:
        return f"under {100 * LEAST_TOLD:g}\u00a0%"
    return f"{float(f'{100 * share:.2g}'):g}\u00a0%" if share < SMALL else percent(share)


def points(gain: float) -> str:
    """Write a difference of rates in points."""
    return "next to nothing" if gain < WORTH_TELLING else f"+{100 * gain:.2f} points"


def shown_ettr(found: Answer) -> float:
    """Return the effective training rate at the used period."""
    return found.steps.ettr if found.steps else found.recommended_ettr


def headline(found: Answer, job: Job | None) -> dict[str, Any]:
    """Return what stands in the answer itself."""
    return {
        "big": _big(found),
        "every_steps": found.steps.every_steps if found.steps else None,
        "in_steps": _in_steps(found),
        "ettr": percent(shown_ettr(found)),
        "rate_words": "effective training rate, or more" if _free(found) else "effective training rate at that period",
        "target": number(found.inputs.target),
        "feasible": found.reachable,
        "interval": _interval(found),
        "credible_rate": _credible_rate(found),
        "credible_words": _credible(found),
        "improve": improve(found),
        "present": _present(found, job),
        "as_good": as_good(found),
        "repair_known": found.request.repair_s is not None,
    }


def _free(found: Answer) -> bool:
    """Return whether any longer period is as good: nothing is lost without faults."""
    return found.inputs.mtbf_s is None and found.exact.feasible


def _big(found: Answer) -> str:
    period_s = found.used_s
    if _free(found):
        return "Save as rarely as you like"
    return "No need to save" if period_s is None else f"Save every {spoken(period_s)}"


def verdict(found: Answer | None, faults: Sequence[Any]) -> str:
    """Return the answer in one sentence, for the bar that stays in view and for screen readers."""
    if found is None:
        return f"No answer: {len(faults)} value{'' if len(faults) == 1 else 's'} cannot be planned with."
    target, period_s = number(found.inputs.target), found.used_s
    reach = "is reachable" if found.reachable else "is not reachable"
    every = "no need to save" if period_s is None else f"save every {spoken(period_s)}"
    if _free(found) and period_s is not None:
        often = f"not more often than every {spoken(period_s)}"
        return f"{target} {reach}: without faults save as rarely as you like, {often}."
    first = f" Improve first: {improve(found)['name']}." if _gains(found) else ""
    return f"{target} {reach}: {every} for {percent(shown_ettr(found))}.{first}"


def _in_steps(found: Answer) -> str:
    period_s = found.used_s
    if _free(found) and period_s is not None:
        often = f"No faults: not more often than every {spoken(period_s)}"
        return often + (f", {steps(found.steps.every_steps)}" if found.steps else "")
    if found.steps is None:
        return "start to start; in steps once the time of one is known"
    return f"every {steps(found.steps.every_steps)} of {step_time(found)}, start to start of two saves"


def step_time(found: Answer) -> str:
    """Write the time of one step."""
    step_s = found.request.step_s or 0.0
    return f"{step_s:.3g}\u00a0s" if 0.1 <= step_s < 60 else spoken(step_s)


def _interval(found: Answer) -> str:
    if found.why_no_steps:
        return found.why_no_steps
    if found.exact.interval_s is None:
        return f"the best there is gives {percent(found.exact.ettr_max)}; below is what would have to change"
    low_s, high_s = found.exact.interval_s
    return f"with any period from {spoken(low_s)} " + ("on" if high_s is None else f"to {spoken(high_s)}")


def _credible_rate(found: Answer) -> str:
    if found.credible is None:
        return ""
    low, high = found.credible.ettr_max
    return f"{percent(low, 1)} to {percent(high, 1)} with {percent(found.credible.level, 0)} probability"


def _credible(found: Answer) -> str:
    known = found.credible
    if known is None:
        return ""
    often, seldom = known.mtbf_s
    low, high = known.period_s
    return (
        f"{sureness(known.p_target)} likely to be reachable; with {percent(known.level, 0)} probability a fault comes "
        f"every {roughly(often)} to {roughly(seldom)}, and the best period is {roughly(low)} to {roughly(high)}"
    )


def sureness(probability: float) -> str:
    """Write a probability that rests on few faults: certainty is never among the words."""
    if probability > 0.99:
        return "more than 99 %"
    return "less than 1 %" if probability < 0.01 else percent(probability, 0)


def roughly(value_s: float) -> str:
    """Write a duration in its largest unit."""
    told = plain(value_s).split(" ")
    if len(told) < 4:
        return "\u00a0".join(told)
    count = value_s / UNITS_S[told[1]]
    return f"{grouped(round(count)) if count >= ROUND_FROM else f'{count:.2g}'}\u00a0{told[1]}"


def as_good(found: Answer) -> bool:
    """Return whether the period of now keeps the target, and is so near the best that a change is not worth it."""
    return found.present is not None and found.present.keeps_target and found.present.ettr_gain < WORTH_CHANGING


def _present(found: Answer, job: Job | None) -> str:
    now = found.present
    if now is None or job is None:
        return ""
    told = f"Now every {steps(job.every_steps)}, {spoken(now.period_s)}: {percent(now.ettr)}"
    less = (
        "as good as the best"
        if now.ettr_gain < WORTH_TELLING
        else f"{100 * now.ettr_gain:.2f} points less than at best"
    )
    return f"{told}, {less}. Nothing needs to change." if as_good(found) else f"{told}, {less}."


def improve(found: Answer) -> dict[str, str]:
    """Return what to improve first and what that gives; that nothing would help is an answer too."""
    gains = _gains(found)
    if not gains:
        return {"name": "nothing", "sentence": "Halving any one value gives next to nothing."}
    name, by = gains[0]
    how = "One more gives" if name == STANDBYS else "Halving it gives"
    then = ", ".join(f"{other} {points(gain)}" for other, gain in gains[1:3])
    return {"name": name, "sentence": f"{how} {points(by)}{f'; then {then}' if then else ''}."}


def _gains(found: Answer) -> list[tuple[str, float]]:
    """Return what improving one thing alone gives, the most first: half of it, or one standby more.

    The failure rate comes last: halving it gains the most nearly always, and nobody can simply build that.
    """
    told = {NAMES.get(gain.name, gain.name.replace("_", " ")): gain.ettr_gain for gain in found.gains}
    worth = [(name, gain) for name, gain in told.items() if gain >= WORTH_TELLING]
    return sorted(worth, key=lambda each: (each[0] == NAMES["fault_rate"], -each[1]))
