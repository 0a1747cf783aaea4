"""How the planner's answer is told: the headline, what to improve first, and what is lost."""

from collections.abc import Sequence
from typing import Any

from reliability.domain import planner
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken
from reliability.models import Job

NAMES = {
    "save_stall": "save stall",
    "recovery": "recovery",
    "downtime": "downtime",
    "drain": "drain",
    "fault_rate": "failure rate",
}
STANDBYS = "standbys"
WORTH_TELLING = 5e-5
"""Half of a hundredth of a point: less is told as next to nothing."""
WORTH_CHANGING = 5e-4
"""A twentieth of a point: less is not worth another period."""
DAY_S = 86400.0
UNITS_S = {"min": 60.0, "h": 3600.0, "d": DAY_S}


def number(value: float | None) -> str:
    """Write a plain number."""
    return "unknown" if value is None else f"{value:.6g}"


def percent(share: float | None, digits: int = 2) -> str:
    """Write a share as per cent, with more digits where it is next to nothing or next to all."""
    if share is None:
        return "unknown"
    edge = min(share, 1 - share)
    if 0 < edge < 0.5 * 10.0 ** -(digits + 2):
        return f"{100 * share:.3g} %" if share < 0.5 else f"{100 * share:.6g} %"
    return f"{100 * share:.{digits}f} %"


def points(gain: float) -> str:
    """Write a difference of rates in points."""
    return "next to nothing" if gain < WORTH_TELLING else f"+{100 * gain:.2f} points"


def standby_gain(found: Answer) -> float | None:
    """Return how much the best rate rises with one more standby; None where standbys or repair time are not known."""
    request, count = found.request, found.request.standbys
    if count is None or request.repair_s is None:
        return None
    more = request.inputs_at(found.inputs.faults_per_s, standbys=count + 1)
    return planner.exact.best(more)[1] - planner.exact.best(found.inputs)[1]


def shown_s(found: Answer) -> float | None:
    """Return the period that is told: of whole steps where the time of one is known."""
    return found.steps.period_s if found.steps else found.recommended_s


def shown_ettr(found: Answer) -> float:
    """Return the effective training rate at that period."""
    return found.steps.ettr if found.steps else found.recommended_ettr


def headline(found: Answer, job: Job | None) -> dict[str, Any]:
    """Return what stands in the answer itself."""
    period_s, gains = shown_s(found), _gains(found)
    return {
        "period_s": period_s,
        "headline": "No need to save" if period_s is None else "",
        "every_steps": found.steps.every_steps if found.steps else None,
        "in_steps": _in_steps(found),
        "ettr": percent(shown_ettr(found)),
        "target": number(found.inputs.target),
        "feasible": found.exact.feasible,
        "interval": _interval(found),
        "credible_rate": _credible_rate(found),
        "credible_words": _credible(found),
        "first": _first(gains[0]) if gains else None,
        "then": ", ".join(f"{name} {points(gain)}" for name, gain in gains[1:3]),
        "present": _present(found, job),
        "as_good": as_good(found),
        "repair_known": found.request.repair_s is not None,
    }


def verdict(found: Answer | None, faults: Sequence[Any]) -> str:
    """Return the answer in one sentence, for the bar that stays in view and for screen readers."""
    if found is None:
        return f"No answer: {len(faults)} value{'' if len(faults) == 1 else 's'} cannot be planned with."
    target, period_s = number(found.inputs.target), shown_s(found)
    reach = "is reachable" if found.exact.feasible else "is not reachable"
    every = "no need to save" if period_s is None else f"save every {spoken(period_s)}"
    return f"{target} {reach}: {every} for {percent(shown_ettr(found))}."


def _in_steps(found: Answer) -> str:
    if found.steps is None:
        return "start to start; in steps once the time of one is known"
    step_s = found.request.step_s or 0.0
    every = found.steps.every_steps
    step = f"{step_s:.3g} s" if step_s < 60 else spoken(step_s)
    return f"every {every} step{'' if every == 1 else 's'} of {step}, start to start of two saves"


def _interval(found: Answer) -> str:
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
        f"{sureness(known.p_target)} sure: a fault comes every {roughly(often)} to {roughly(seldom)}, so the best "
        f"period lies from {roughly(low)} to {roughly(high)} ({percent(known.level, 0)} credible)"
    )


def sureness(probability: float) -> str:
    """Write a probability that rests on few faults: not finer than a thousandth."""
    if probability > 0.999:
        return "over 99.9 %"
    return "less than 0.1 %" if probability < 0.001 else percent(probability, 0)


def roughly(value_s: float) -> str:
    """Write a duration in its largest unit."""
    told = spoken(value_s).split(" ")
    if len(told) < 4:
        return " ".join(told)
    size = UNITS_S[told[1]]
    return f"{value_s / size:.2g} {told[1]}" if value_s < 100 * size else f"{value_s / size:.0f} {told[1]}"


def as_good(found: Answer) -> bool:
    """Return whether the period of now keeps the target, and is so near the best that a change is not worth it."""
    return found.present is not None and found.present.keeps_target and found.present.ettr_gain < WORTH_CHANGING


def _present(found: Answer, job: Job | None) -> str:
    now = found.present
    if now is None or job is None:
        return ""
    told = f"Now every {job.every_steps} steps, {spoken(now.period_s)}: {percent(now.ettr)}"
    less = (
        "as good as the best"
        if now.ettr_gain < WORTH_TELLING
        else f"{100 * now.ettr_gain:.2f} points less than at best"
    )
    return f"{told}, {less}. Nothing needs to change." if as_good(found) else f"{told}, {less}."


def _gains(found: Answer) -> list[tuple[str, float]]:
    """Return what improving one thing alone gives, the most first: half of it, or one standby more.

    The failure rate comes last: halving it gains the most nearly always, and nobody can simply build that.
    """
    told = [(NAMES[gain.name], gain.ettr_gain) for gain in found.gains]
    told.append((STANDBYS, standby_gain(found) or 0.0))
    worth = [(name, gain) for name, gain in told if gain >= WORTH_TELLING]
    return sorted(worth, key=lambda each: (each[0] == NAMES["fault_rate"], -each[1]))


def _first(gain: tuple[str, float]) -> dict[str, str]:
    name, by = gain
    how = "One more gives" if name == STANDBYS else "Halving it gives"
    return {"name": name, "sentence": f"{how} {points(by)}"}


LOSSES = (
    ("saving", "saving", "the stalls of saves", 45),
    ("rollback", "rollback", "steps that are done again after a fault", -45),
    ("recovery", "recovery", "loading and starting after a fault", 90),
    ("downtime", "downtime", "no attempt runs: detection, swap, cluster away", 0),
)


def lost(found: Answer) -> dict[str, Any]:
    """Return the time lost in a day, by cause, with the places of its parts in a bar of 1000."""
    period_s = shown_s(found)
    shares = planner.exact.shares_at(found.inputs, period_s) if period_s is not None else found.exact.shares
    total = max(0.0, 1.0 - shares.useful)
    rows, at = [], 0.0
    for name, label, what, turn in LOSSES:
        share = max(0.0, getattr(shares, name))
        width = 1000 * share / total if total else 0.0
        rows.append(
            {
                "name": name,
                "label": label,
                "what": what,
                "turn": turn,
                "share": share,
                "seconds": DAY_S * share,
                "from": f"{at:.1f}",
                "width": f"{width:.1f}",
            }
        )
        at += width
    title = f"Of a day, {spoken(DAY_S * total)} are lost"
    words = ", ".join(f"{row['label']} {spoken(row['seconds'])}" for row in rows)
    most = max(rows, key=lambda row: row["share"])
    if total:
        title += f", most of it to {most['label']}"
    return {"title": title, "words": words, "rows": rows, "total_s": DAY_S * total, "share": total}
