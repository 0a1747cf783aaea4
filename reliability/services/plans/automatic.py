"""May a job's period be planned anew by itself, and is there reason to?

Inside limits that a person sets, from what was measured of the job. Nothing is changed on assumptions: while no save
was measured or no fault was seen, the person must have confirmed a value to stand in. Recovery and downtime may be
defaults: they do not move the best period. Each look leaves a sentence about what came of it, and each change is a plan
of its own with its reason.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from django.db import transaction

from reliability.domain.planner.durations import spoken
from reliability.domain.planner.inputs import check
from reliability.domain.planner.replanning import MOST_S, Limits, judge
from reliability.domain.planner.steps import MOST_STEPS
from reliability.errors import DomainError, InvalidInput, ReliabilityError
from reliability.models import AutoPlan, Job, Plan
from reliability.selectors import plan_inputs, plan_request
from reliability.selectors.plan_inputs import Known
from reliability.services import boundary, clock, dispatch
from reliability.services.plans import applying
from reliability.services.plans.applying import Source

DECISIVE = {"save_stall": "how long a save stalls", "mtbf": "how often the job fails"}
CONFIRMABLE = ("save_stall", "mtbf", "recovery", "downtime", "drain", "drain_ssd", "repair")
NEVER_ZERO = ("mtbf", "repair")


def set_auto(
    job: Job,
    *,
    by: str,
    target: float,
    shortest_period_s: float,
    longest_period_s: float,
    change_ratio: float = 1.25,
    least_interval_s: float = 3600.0,
    confirmed: Mapping[str, float] | None = None,
) -> AutoPlan:
    """Have the job planned anew by itself within these limits, from now on. Raises InvalidInput naming the field.

    `confirmed` holds values in seconds that stand in while nothing is measured; what is measured wins.
    Raises DomainError for a job that is over.
    """
    limits = Limits(
        target=target,
        shortest_period_s=shortest_period_s,
        longest_period_s=longest_period_s,
        change_ratio=change_ratio,
        least_interval_s=least_interval_s,
    )
    stands_in = _checked(confirmed or {})
    values = {**asdict(limits), "confirmed": stands_in, "enabled": True, "set_by": by, "set_at": clock.now()}
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if job.state in Job.TERMINAL:
            raise DomainError(
                f"Job {job.name} is over: there is nothing to plan by itself.", hint="Start it again first."
            )
        told = {"last_outcome": "Not looked at yet.", "last_looked_at": None}
        found, _ = AutoPlan.objects.update_or_create(job=job, defaults={**values, **told})
        dispatch.changed(f"job:{job.pk}")
    return found


def stop_auto(job: Job, *, by: str) -> AutoPlan | None:
    """Leave the job's period to people again; None when it was never otherwise."""
    with transaction.atomic():
        found = AutoPlan.objects.select_for_update().filter(job=job).first()
        if found is not None and found.enabled:
            found.enabled, found.last_outcome = False, f"Stopped by {by}."
            found.save(update_fields=["enabled", "last_outcome"])
            dispatch.changed(f"job:{job.pk}")
    return found


def _checked(confirmed: Mapping[str, float]) -> dict[str, float]:
    for name, value in confirmed.items():
        field = f"confirmed.{name}"
        if name not in CONFIRMABLE:
            raise InvalidInput(field, "cannot be confirmed", hint=f"One of: {', '.join(CONFIRMABLE)}.")
        check(field, value, 0.0, MOST_S, "Give a time, 0 or longer.")
        if value == 0 and name in NEVER_ZERO:
            raise InvalidInput(field, "0 is not possible", hint="Give a time such as 12h.")
    return dict(confirmed)


def replan_all(now: datetime) -> None:
    """Look at every running job that is planned anew by itself, each behind its own boundary."""
    rows = Job.objects.filter(state=Job.State.RUNNING, auto_plan__enabled=True).order_by("pk")
    for job in rows:
        boundary.apart("Planning anew", replan, job, now, job=job.pk)


def replan(job: Job, now: datetime) -> Plan | None:
    """Change the period if there is reason to, and keep what the look came to. Returns the plan if one was made."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        auto = AutoPlan.objects.select_for_update().filter(job=job, enabled=True).first()
        if auto is None:
            return None
        plan, auto.last_outcome = _look(job, auto, now)
        auto.last_looked_at = now
        auto.save(update_fields=["last_looked_at", "last_outcome"])
        return plan


def _look(job: Job, auto: AutoPlan, now: datetime) -> tuple[Plan | None, str]:
    known = plan_inputs.known(job, now=now)
    in_the_way = _in_the_way(job, auto, known, now)
    if in_the_way:
        return None, f"No change: {in_the_way}."
    given = _given(auto, known)
    try:
        asked = plan_request.asked(given, job, now=now)
        if asked.request is None:
            raise asked.errors[0]
        found = applying.answered(job, asked.request)
        outcome = judge(_limits(auto), found, every_steps=job.every_steps)
    except ReliabilityError as error:
        return None, f"No change: {error.message} {error.hint}".strip()
    if outcome.every_steps is None:
        return None, outcome.told
    if outcome.every_steps > MOST_STEPS:
        most = f"{MOST_STEPS:,} steps, the most that a job can be ordered"
        return None, f"No change: the best period within the limits is longer than {most}."
    plan = applying.keep(
        job,
        found,
        outcome.every_steps,
        sources=_sources(auto, known, given),
        by=f"automatic, within the limits of {auto.set_by}"[:150],
        reason=outcome.told,
        automatic=True,
    )
    return plan, outcome.told


def _limits(auto: AutoPlan) -> Limits:
    return Limits(**{field.name: getattr(auto, field.name) for field in fields(Limits)})


def _in_the_way(job: Job, auto: AutoPlan, known: Mapping[str, Known], now: datetime) -> str:
    """Return why nothing may be changed now, whatever the period would be; '' for nothing."""
    if job.state != Job.State.RUNNING:
        return f"the job is {job.get_state_display()}"
    newest = job.plans.first()
    if newest is not None:
        if newest.began_at is None and newest.ended_at is None:
            return f"plan {newest.version} is not in force yet"
        since_s = (now - newest.applied_at).total_seconds()
        if since_s < auto.least_interval_s:
            left, ago = spoken(max(1.0, round(auto.least_interval_s - since_s))), spoken(round(since_s))
            return f"plan {newest.version} was applied {ago} ago, and it is looked at again in {left}"
    missing = [name for name in DECISIVE if plan_inputs.is_assumed(known[name]) and name not in auto.confirmed]
    assumed = [DECISIVE[name] for name in missing]
    return f"not measured yet, and confirmed by nobody: {' and '.join(assumed)}" if assumed else ""


def _given(auto: AutoPlan, known: Mapping[str, Known]) -> dict[str, Any]:
    """Return what the person fixed: the target, and what stands in for what was not measured."""
    stands_in = {name: value for name, value in auto.confirmed.items() if plan_inputs.is_assumed(known[name])}
    return {**stands_in, "target": auto.target}


def _sources(auto: AutoPlan, known: Mapping[str, Known], given: Mapping[str, Any]) -> dict[str, Source]:
    found = applying.sources(known, given, by=auto.set_by)
    for name in given:
        found[name]["told"] = f"confirmed by {auto.set_by} for automatic plans"
    return found
