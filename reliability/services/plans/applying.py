"""From an answer of the planner to a plan of a job: may it be applied, and what is kept of it?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from django.db import transaction
from django.db.models import Max

from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer, answer, as_json
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.request import Request
from reliability.errors import DomainError
from reliability.models import Job, Plan
from reliability.selectors import plan_samples
from reliability.selectors.plan_inputs import Known
from reliability.services import clock, dispatch
from reliability.services.plans import announcing

SAME_PERIOD = 0.25
"""The loss is flat around the best period: a quarter more or less costs a few per cent of what saving costs."""
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
    """Announce the period that this request gives, from a step ahead of the newest rank.

    The time of a step is measured now. `shown` is the number of steps that the person saw: it is what is ordered,
    unless the job's speed has changed so much that it would be another period. Pressed twice it is one plan. Raises
    DomainError when the speed has changed or is not known yet, when the target is out of reach, and when the job is
    over; InvalidInput when the values cannot be planned with.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        found = answered(job, request)
        every_steps = _as_shown(shown, _steps(found))
        newest = job.plans.first()
        if newest is not None and _is_same(newest, request, every_steps, by):
            return newest
        return keep(job, found, every_steps, sources=sources, by=by)


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


def _steps(found: Answer) -> int:
    target = f"The target of {found.inputs.target:.4g} cannot be kept"
    if not found.exact.feasible:
        best = f"at best {found.exact.ettr_max:.4g} of the time goes into training that counts"
        raise DomainError(f"{target}: {best}.", hint="Nothing was applied. The planner says what it would take.")
    if found.steps is None or found.steps.interval is None:
        step = spoken(found.request.step_s or 0.0)
        raise DomainError(f"{target} with a whole number of steps of {step}.", hint="Nothing was applied.")
    return found.steps.every_steps


def _as_shown(shown: int | None, now: int) -> int:
    """Return the number on the button while it still is about what the inputs give."""
    if shown is None:
        return now
    if shown < 1 or abs(shown - now) > max(1, SAME_PERIOD * now):
        raise DomainError(
            f"The speed of the job has changed: the inputs now give every {now} steps, not {shown} as shown.",
            hint="Nothing was applied; look at the new number and apply it.",
        )
    return shown


def _is_same(newest: Plan, request: Request, every_steps: int, by: str) -> bool:
    just_now = (clock.now() - newest.applied_at).total_seconds() < TWICE_S
    same = (newest.every_steps, newest.target, newest.applied_by) == (every_steps, request.target, by)
    return just_now and same and newest.ended_at is None and not newest.automatic


def keep(
    job: Job,
    found: Answer,
    every_steps: int,
    *,
    sources: Mapping[str, Source],
    by: str,
    reason: str = "",
    automatic: bool = False,
) -> Plan:
    """Write a plan down and announce it. The caller holds the job's lock."""
    now = clock.now()
    step_s = found.request.step_s
    assert step_s is not None
    period_s = every_steps * step_s + found.inputs.save_stall_s
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
        planned_ettr=exact.ettr_at(found.inputs, period_s),
        epoch=job.epoch,
        automatic=automatic,
        reason=reason,
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
