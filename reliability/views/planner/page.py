"""What stands on the planner's page."""

from typing import Any

from django.http import HttpRequest

from reliability.domain.planner.answer import Answer
from reliability.models import Job
from reliability.plan_forms import CONFIRMED, DEFAULT, ENTERED, AutomaticForm, PlanForm
from reliability.plan_quantities import RATE_UNITS
from reliability.views.planner import asked, figures, kept, reach, words
from reliability.views.planner.asked import Asked

LONGER = 3
"""A period so many times as long as now is worth a warning."""


def context(request: HttpRequest, found: Asked) -> dict[str, Any]:
    """Return everything that the template of the page needs."""
    shown = planned(request, found) | kept.context(found.job)
    if found.job is not None:
        shown["automatic_form"] = AutomaticForm(initial=kept.limits(found.job), known=found.form.known())
    return shown


def planned(request: HttpRequest, found: Asked) -> dict[str, Any]:
    """Return what changes with a value: the form with its sources, and the answer with its evidence."""
    job, form = found.job, found.form
    shown: dict[str, Any] = {
        "job": job,
        "form": form,
        "entries": asked.entries(form),
        "units": RATE_UNITS.items(),
        "unit": form.unit,
        "more_words": ", ".join(item.quantity.label.lower() for item in form.chosen.values() if item.quantity.more),
        "more_open": _more_open(form),
        "query": list(found.query.items()),
        "address": found.address,
        "faults": found.faults,
        "verdict": words.verdict(found.answer, found.faults),
    }
    if found.answer is not None:
        shown |= _answer(request, found, found.answer)
    return shown


def _answer(request: HttpRequest, found: Asked, answer: Answer) -> dict[str, Any]:
    drawn = figures.all_figures(answer)
    headline = words.headline(answer, found.job)
    headline |= _applying(request, found.job, headline)
    headline["warnings"] = _warnings(found, headline)
    return {
        "found": headline,
        "lost": words.lost(answer),
        "levers": reach.levers(answer),
        "why": reach.why(answer),
        "figures": drawn,
        "drawn": figures.as_json(drawn),
    }


def _more_open(form: PlanForm) -> bool:
    more = [(name, chosen) for name, chosen in form.chosen.items() if chosen.quantity.more]
    return any(chosen.source == ENTERED or name in form.errors for name, chosen in more)


def _applying(request: HttpRequest, job: Job | None, headline: dict[str, Any]) -> dict[str, Any]:
    """Return whether there is a button to apply, and what it does or why there is none."""
    every = headline["every_steps"]
    if job is None:
        return {"apply": False, "apply_words": "Choose a job to apply a plan to it."}
    if not request.user.has_perm("reliability.apply_plan"):
        told = "Applying a period needs the operator role."
    elif job.state in Job.TERMINAL:
        told = f"{job.name} is over: nothing can be applied to it."
    elif not headline["feasible"]:
        told = "It cannot be applied: no period reaches the target. Below is what would have to change."
    elif every is None:
        told = "It can be applied once the job has made steps: the time of a step is not known yet."
    else:
        return {"apply": True, "apply_words": _consequences(job, every)}
    return {"apply": False, "apply_words": told}


def _consequences(job: Job, every: int) -> str:
    change = "as now" if every == job.every_steps else f"instead of every {job.every_steps}"
    return (
        f"All ranks of {job.name} save every {every} steps, {change}, from one step on that is announced a little "
        "ahead of the fastest. Nothing restarts; the plan is kept below with its inputs and your name."
    )


def _warnings(found: Asked, headline: dict[str, Any]) -> list[str]:
    """Return what a person should know before applying."""
    job, every = found.job, headline["every_steps"]
    if job is None:
        return []
    assumed = [
        chosen.quantity.label.lower()
        for name, chosen in found.form.chosen.items()
        if chosen.source == DEFAULT and name in CONFIRMED
    ]
    told = [f"Not measured but assumed: {', '.join(assumed)}."] if assumed else []
    if every and every > LONGER * job.every_steps:
        told.append(f"That is {every / job.every_steps:.0f} times as long as now; so is what a fault costs.")
    return told
