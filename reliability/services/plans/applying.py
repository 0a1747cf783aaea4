"""From an answer of the planner to a plan of a job: may it be applied, and what is kept of it?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from django.db import transaction
from django.db.models import Max

from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer, answer, as_json
from reliability.domain.planner.request import Request
from reliability.errors import DomainError, StaleProposal
from reliability.models import Job, Plan
from reliability.selectors import plan_samples
from reliability.selectors.plan_inputs import Known
from reliability.services import clock, dispatch
from reliability.services.plans import announcing, choosing

TWICE_S = 30.0
"""The same period, applied again by the same person so soon, is one press too many and not another plan."""


class Source(TypedDict):
    """A value that a plan was computed from, and where it came from."""

    value: float | None
    source: str
    told: str
    by: str


def apply(
    job: Job,
    *,
    request: Request,
    sources: Mapping[str, Source],
    by: str,
    shown: int | None = None,
    accept_missed: bool = False,
    chosen_steps: int | None = None,
    seen: int | None = None,
) -> Plan:
    """Announce the period that this request gives, or the one a person chose, from a step ahead of the newest rank.

    The time of a step is measured now. `shown` is the number of steps that the person saw: it is what is ordered,
    unless it would be another period by now. `chosen_steps` is ordered instead of what is computed. `accept_missed`:
    also when the target is missed. `seen` is the version of the newest plan that the person knew of, 0 for none.
    Pressed twice it is one plan, and so it is when somebody else has just applied the very same. Raises DomainError
    when the speed is not known yet, the target is out of reach, another plan was applied since, or the job is over;
    InvalidInput, naming the field, when the values cannot be planned with.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        found = answered(job, request)
        if chosen_steps is None:
            every_steps = choosing.computed(found, shown=shown, accept_missed=accept_missed)
        else:
            every_steps = choosing.chosen(found, chosen_steps, accept_missed=accept_missed)
            sources = {**sources, "period": _choice(found, every_steps, by)}
        newest = job.plans.first()
        if newest is not None and _is_same(newest, request, every_steps, by, seen):
            return newest
        _refuse_unseen(newest, seen)
        return keep(job, found, every_steps, sources=sources, by=by, by_choice=chosen_steps is not None)


def answered(job: Job, request: Request) -> Answer:
    """Return the answer at the speed that the job has now. Raises DomainError for a job without one."""
    if job.state in Job.TERMINAL:
        raise DomainError(f"Job {job.name} is over: its period cannot be changed.")
    step_s, _ranks = plan_samples.step_s(job)
    if step_s is None:
        raise DomainError(
            f"The speed of job {job.name} is not known yet.", hint="Wait until every rank has made a few steps."
        )
    present_s = job.every_steps * step_s + request.save_stall_s
    return answer(replace(request, step_s=step_s, period_s=present_s))


def _choice(found: Answer, every_steps: int, by: str) -> Source:
    period_s = every_steps * (found.request.step_s or 0.0) + found.inputs.save_stall_s
    return {"value": period_s, "source": "entered", "told": f"every {every_steps} steps, chosen by {by}", "by": by}


def _is_same(newest: Plan, request: Request, every_steps: int, by: str, seen: int | None) -> bool:
    """Return whether there is nothing new to say: it was pressed twice, or somebody else was first with the same."""
    if (newest.every_steps, newest.target) != (every_steps, request.target) or newest.ended_at is not None:
        return False
    twice = newest.applied_by == by and (clock.now() - newest.applied_at).total_seconds() < TWICE_S
    return (twice and not newest.automatic) or (seen is not None and seen != newest.version)


def _refuse_unseen(newest: Plan | None, seen: int | None) -> None:
    """Raise StaleProposal when the newest plan is not the one that the person knew of."""
    if newest is None or seen is None or seen == newest.version:
        return
    period = f"every {newest.every_steps} steps"
    raise StaleProposal(
        f"Plan {newest.version}, {period}, was applied by {newest.applied_by} since you looked.",
        hint="Nothing was applied; look at it first, then apply yours if it still is what you want.",
    )


def keep(
    job: Job,
    found: Answer,
    every_steps: int,
    *,
    sources: Mapping[str, Source],
    by: str,
    reason: str = "",
    automatic: bool = False,
    by_choice: bool = False,
) -> Plan:
    """Write a plan down and announce it. The caller holds the job's lock."""
    now = clock.now()
    step_s = found.request.step_s
    assert step_s is not None
    period_s = every_steps * step_s + found.inputs.save_stall_s
    planned_ettr = exact.ettr_at(found.inputs, period_s)
    announcing.end_unbegun(job, now)
    plan = Plan(
        job=job,
        version=(job.plans.aggregate(newest=Max("version"))["newest"] or 0) + 1,
        inputs={name: dict(source) for name, source in sources.items()},
        outputs=as_json(found, sources=sources),
        every_steps=every_steps,
        period_s=period_s,
        step_s=step_s,
        target=found.inputs.target,
        planned_ettr=planned_ettr,
        epoch=job.epoch,
        automatic=automatic,
        reason=reason or choosing.reason(found, every_steps, planned_ettr, by_choice=by_choice, by=by),
        applied_by=by,
        applied_at=now,
    )
    announcing.announce(job, plan, step_s=step_s, now=now)
    dispatch.changed("overview", f"job:{job.pk}")
    return plan


def sources(
    known: Mapping[str, Known], entered: Mapping[str, float | None] | None = None, *, by: str = ""
) -> dict[str, Source]:
    """Return where each value comes from: as entered where a person entered it, else as it is known."""
    found: dict[str, Source] = {}
    for name, value in known.items():
        found[name] = {"value": value.value, "source": value.kind, "told": value.told, "by": ""}
    for name, given in (entered or {}).items():
        found[name] = {"value": given, "source": "entered", "told": f"entered by {by}", "by": by}
    return found
