"""Is every announced plan followed by all ranks, when did it come into force, and what came of the one before?"""

import math
from datetime import datetime, timedelta

from django.db import transaction

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
    """Look at every plan that is announced and not in force yet."""
    waiting = Plan.objects.filter(began_at=None, ended_at=None, job__state__in=announcing.TOLD_IN)
    for plan_id in waiting.values_list("pk", flat=True):
        boundary.apart("Following a plan", follow, plan_id, now, plan=plan_id)


def follow(plan_id: int, now: datetime) -> None:
    """Tell again who has not heard, put the plan off when that takes too long, and note when it comes into force."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(plans=plan_id)
        plan = Plan.objects.get(pk=plan_id)
        if plan.began_at is not None or plan.ended_at is not None or job.state not in announcing.TOLD_IN:
            return
        if not announcing.behind(plan).exists():
            _begin_when_passed(plan)
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
        before.ended_at, before.ended_step = plan.began_at, plan.began_step
        before.save(update_fields=["ended_at", "ended_step"])
        freeze(before)
    dispatch.changed("overview", f"job:{plan.job_id}")


def freeze(plan: Plan, now: datetime | None = None) -> None:
    """Keep what came of a plan that is over: what tells of it may be forgotten. Done twice it changes nothing."""
    if plan.ended_at is None or plan.measured:
        return
    plan.measured = plan_history.as_json(plan_history.measure(plan, now=now or plan.ended_at))
    plan.save(update_fields=["measured"])
