"""What stands on the planner's page."""

from typing import Any

from django.http import HttpRequest

from reliability.domain.planner.answer import Answer
from reliability.plan_forms import CONFIRMED, ENTERED, PlanForm
from reliability.plan_limits_form import AutomaticForm
from reliability.plan_quantities import RATE, RATE_UNITS
from reliability.views.planner import asked, figures, kept, losing, ordering, reach, words
from reliability.views.planner.asked import Asked

LONGER = 3
"""A period so many times as long as now is worth a warning."""


def context(request: HttpRequest, found: Asked) -> dict[str, Any]:
    """Return everything that the template of the page needs."""
    shown = planned(request, found) | kept.context(found.job)
    if found.job is not None:
        limits = kept.limits(found.job, found.answer)
        shown["automatic_form"] = AutomaticForm(initial=limits, known=found.form.best_known())
    return shown | {"whole": True}


def planned(request: HttpRequest, found: Asked, *, why: bool = True) -> dict[str, Any]:
    """Return what changes with a value: the form with its sources, and the answer with its evidence."""
    job, form = found.job, found.form
    shown: dict[str, Any] = {
        "job": job,
        "form": form,
        "entries": asked.entries(form),
        "units": RATE_UNITS.items(),
        "unit": form.unit,
        "typed": form.typed,
        "example": job is None and any(form.chosen[name].source != ENTERED for name in asked.EXAMPLES),
        "more_words": ", ".join(item.quantity.label.lower() for item in form.chosen.values() if item.quantity.more),
        "more_open": _more_open(form),
        "query": list(found.query.items()),
        "address": found.address,
        "faults": found.faults,
        "verdict": words.verdict(found.answer, found.faults),
    }
    if found.answer is not None:
        shown |= _answer(request, found, found.answer, why=why)
    return shown


def _answer(request: HttpRequest, found: Asked, answer: Answer, *, why: bool) -> dict[str, Any]:
    drawn = figures.all_figures(answer)
    headline = words.headline(answer, found.job)
    headline |= ordering.offered(request, found, answer)
    headline["primary"] = not headline["as_good"] and not found.form.chosen[RATE].assumed
    headline["warnings"] = _warnings(found, answer, headline)
    return {
        "found": headline,
        "lost": losing.lost(answer),
        "levers": reach.levers(answer),
        "why": reach.why(answer) if why else {},
        "figures": drawn,
        "drawn": figures.as_json(drawn),
    }


def _more_open(form: PlanForm) -> bool:
    more = [(name, chosen) for name, chosen in form.chosen.items() if chosen.quantity.more]
    return any(chosen.source == ENTERED or name in form.errors for name, chosen in more)


def _warnings(found: Asked, answer: Answer, headline: dict[str, Any]) -> list[str]:
    """Return what a person should know before applying."""
    job, every = found.job, headline["every_steps"]
    if job is None:
        return []
    assumed = [
        chosen.quantity.label.lower()
        for name, chosen in found.form.chosen.items()
        if name in CONFIRMED and chosen.assumed
    ]
    told = [f"Not measured but assumed: {', '.join(assumed)}."] if assumed else []
    now, period_s = answer.present, answer.used_s
    if every and now and period_s and answer.inputs.mtbf_s is not None and every > LONGER * job.every_steps:
        undone, before = (losing.undone_s(answer, each) for each in (period_s, now.period_s))
        told.append(f"A fault would undo {words.spoken(undone)} on average instead of {words.spoken(before)}.")
    return told
