"""Is every announced plan followed by all ranks, when did it come into force, and what came of the one before?"""

import math
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, OuterRef, QuerySet, Subquery

from reliability.models import Job, Plan, Rank
from reliability.selectors import plan_history
from reliability.services import boundary, dispatch
from reliability.services.plans import announcing

GUARD_STEPS = 2
GUARD_S = 4.0
"""A plan that a rank has not heard of so near to its first step is put off: there must be time left to say so."""
AGAIN_S = 5.0
AGAIN_STEPS = 3


def follow_all(now: datetime) -> None:
    """Look at every plan that is announced and not in force yet, and at those of jobs that ended or go on."""
    over = Plan.objects.filter(ended_at=None, job__state__in=Job.TERMINAL)
    for job_id in over.order_by("job_id").values_list("job_id", flat=True).distinct():
        boundary.apart("Closing the plans of a job", close, job_id, job=job_id)
    going_on = _newest().filter(ended_at__isnull=False, job__state__in=announcing.TOLD_IN)
    for plan_id in going_on.values_list("pk", flat=True):
        boundary.apart("Opening a plan again", open_again, plan_id, plan=plan_id)
    waiting = Plan.objects.filter(began_at=None, ended_at=None, job__state__in=announcing.TOLD_IN)
    for plan_id in waiting.values_list("pk", flat=True):
        boundary.apart("Following a plan", follow, plan_id, now, plan=plan_id)


def close(job_id: int) -> None:
    """End the plans of a job that is over, as of its end, and keep what came of them."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
        if job.state not in Job.TERMINAL or job.ended_at is None:
            return
        announcing.end_unbegun(job, job.ended_at, why="The job ended before it came into force.")
        step = job.ranks.aggregate(newest=Max("step"))["newest"]
        for plan in job.plans.filter(ended_at=None):
            _end(plan, job.ended_at, step)
        dispatch.changed("overview", f"job:{job.pk}")


def open_again(plan_id: int) -> None:
    """Go on with the newest plan of a job that was started again: its ranks save as was announced last."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(plans=plan_id)
        if job.state in announcing.TOLD_IN and job.plans.values_list("pk", flat=True).first() == plan_id:
            job.plans.filter(pk=plan_id).update(ended_at=None, ended_step=None, measured={})
            dispatch.changed("overview", f"job:{job.pk}")


def _newest() -> QuerySet[Plan]:
    """Return the newest plan of every job: only the end of the job can have ended it."""
    of_job = Plan.objects.filter(job=OuterRef("job")).order_by("-version")
    return Plan.objects.filter(pk=Subquery(of_job.values("pk")[:1]))


def follow(plan_id: int, now: datetime) -> None:
    """Tell again who has not heard, put the plan off when that takes too long, and note when it comes into force."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(plans=plan_id)
        plan = Plan.objects.get(pk=plan_id)
        if plan.began_at is not None or plan.ended_at is not None or job.state not in announcing.TOLD_IN:
            return
        if not announcing.behind(plan).exists():
            _begin_when_passed(plan)
        elif not announcing.must_be_told(plan).exists():
            return
        elif _comes_too_soon(job, plan, now):
            announcing.announce(job, plan, step_s=plan.step_s, now=now)
            dispatch.changed(f"job:{job.pk}")
        else:
            pause_s = max(AGAIN_S, AGAIN_STEPS * plan.step_s)
            announcing.tell_again(job, plan, before=now - timedelta(seconds=pause_s))


def _comes_too_soon(job: Job, plan: Plan, now: datetime) -> bool:
    guard = max(GUARD_STEPS, math.ceil(GUARD_S / plan.step_s))
    return announcing.expected_step(job, step_s=plan.step_s, now=now) + guard >= plan.from_step


def _begin_when_passed(plan: Plan) -> None:
    """A plan is in force once every rank has passed its first step; the one before it is over then."""
    ranks = list(Rank.objects.filter(job=plan.job_id).exclude(state=Rank.State.EXITED))
    steps = [rank.step if rank.step is not None else -1 for rank in ranks]
    if not ranks or min(steps) < plan.from_step:
        return
    newest = max(ranks, key=lambda rank: rank.step or 0)
    plan.began_at, plan.began_step = newest.progress_at, newest.step
    plan.save(update_fields=["began_at", "began_step"])
    for before in Plan.objects.filter(job=plan.job_id, version__lt=plan.version, ended_at=None):
        _end(before, plan.began_at, plan.began_step)
    dispatch.changed("overview", f"job:{plan.job_id}")


def _end(plan: Plan, at: datetime | None, step: int | None) -> None:
    plan.ended_at, plan.ended_step = at, step
    plan.save(update_fields=["ended_at", "ended_step"])
    freeze(plan)


def freeze(plan: Plan, now: datetime | None = None) -> None:
    """Keep what came of a plan that is over: what tells of it may be forgotten. Done twice it changes nothing."""
    if plan.ended_at is None or plan.measured:
        return
    plan.measured = plan_history.as_json(plan_history.measure(plan, now=now or plan.ended_at))
    plan.save(update_fields=["measured"])
