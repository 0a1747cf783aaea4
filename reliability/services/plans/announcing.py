"""From which step on does a plan hold, and how do all ranks learn of it before they come to that step?

Ranks go by the step alone and never talk to each other about it. So the step lies ahead of all of them, and a plan
that not every rank has heard of when it comes near is put off: until all have, all go on as before. A rank that
hears of it too late after all goes by it at once, and every new attempt starts with what was announced last.
"""

import math
from datetime import datetime

from django.db.models import Count, Max, Q, QuerySet

from reliability.domain.orders import OrderKind
from reliability.models import Job, Node, OrderRecord, Plan, Rank
from reliability.selectors import core
from reliability.services import orders

MARGIN_STEPS = 5
MARGIN_S = 10.0
"""A new period begins this far ahead, or farther when it had to be put off before."""
LONGEST_MARGIN_S = 600.0
LOOK_AHEAD_S = 60.0
"""So long after its last word a rank is taken to go on stepping."""
REPLACED = "Another plan took its place before it came into force."
TOLD_IN = (Job.State.RUNNING, Job.State.WAITING)
"""States in which ranks may be training: in all others they get the plan when they are started."""

FAILED = Q(state=Rank.State.FAILED)


def announce(job: Job, plan: Plan, *, step_s: float, now: datetime) -> None:
    """Say from which step on the plan holds, and tell the nodes. The caller holds the job's lock.

    The number of the announcement rises each time, so that it counts as followed only when the ranks know this one.
    """
    earlier = [entry for entry in job.period_plan if entry["from_step"] not in _withdrawn(job, plan)]
    plan.newest_step = expected_step(job, step_s=step_s, now=now)
    plan.from_step = plan.newest_step + margin_steps(plan, step_s=step_s, now=now)
    plan.announced = job.period_version + 1
    plan.save()
    entry = {"from_step": plan.from_step, "every_steps": plan.every_steps}
    job.period_plan = [*(part for part in earlier if part["from_step"] < plan.from_step), entry]
    job.period_version = plan.announced
    job.every_steps = plan.every_steps
    job.save(update_fields=["period_plan", "period_version", "every_steps"])
    orders.withdraw(now, job=job, kind=OrderKind.SET_PERIOD)
    tell(job, plan)


def _withdrawn(job: Job, plan: Plan) -> set[int]:
    """Return the first steps of announcements that this one takes the place of.

    These are its own earlier one, and those of plans of which some rank has never heard: the ranks that have must not
    go by them alone.
    """
    own = {plan.from_step} if plan.pk else set()
    unbegun = job.plans.filter(began_at=None).exclude(pk=plan.pk)
    return own | {each.from_step for each in unbegun if behind(each).exists()}


def margin_steps(plan: Plan, *, step_s: float, now: datetime) -> int:
    """Return how far ahead of the newest rank the plan begins: the longer it waits already, the farther."""
    waited_s = (now - plan.applied_at).total_seconds()
    margin_s = min(max(MARGIN_S, waited_s), LONGEST_MARGIN_S)
    return max(MARGIN_STEPS, math.ceil(margin_s / step_s))


def expected_step(job: Job, *, step_s: float, now: datetime) -> int:
    """Return how far the foremost rank may be by now: heartbeats are late, and were it only by a second.

    Where a rank has failed, the others wait for it and none gets any farther.
    """
    newest = job.ranks.aggregate(step=Max("step"), at=Max("progress_at"), failed=Count("pk", filter=FAILED))
    if newest["step"] is None:
        return core.newest_step_reached(job) or 0
    stepping = newest["at"] is not None and job.state in TOLD_IN and not newest["failed"]
    since_s = (now - newest["at"]).total_seconds() if stepping else 0.0
    return int(newest["step"]) + math.ceil(min(max(0.0, since_s), LOOK_AHEAD_S) / step_s)


def behind(plan: Plan) -> QuerySet[Rank]:
    """Return the ranks that do not go by this plan or a newer one. Those that have finished need not."""
    ranks = Rank.objects.filter(job=plan.job_id, plan_version__lt=plan.announced)
    return ranks.exclude(state=Rank.State.EXITED)


def must_be_told(plan: Plan) -> QuerySet[Rank]:
    """Return those of them that run: what does not gets the plan when it is started."""
    return behind(plan).exclude(FAILED)


def tell(job: Job, plan: Plan) -> None:
    """Order the nodes of all ranks that run and do not go by the plan yet to tell them; asked twice it is one order."""
    if job.state not in TOLD_IN or job.epoch == 0:
        return
    concerned = set(must_be_told(plan).values_list("slot_id", flat=True))
    for slot in core.slots_of(job):
        if slot.node is not None and slot.pk in concerned:
            orders.issue(
                slot.node,
                kind=OrderKind.SET_PERIOD,
                key=order_key(job, plan, slot.node),
                payload={"period_plan": job.period_plan, "plan_version": plan.announced},
                job=job,
                epoch=job.epoch,
            )


def tell_again(job: Job, plan: Plan, *, before: datetime) -> None:
    """Repeat what was answered, refused or not heard before an instant, where ranks still do not go by the plan."""
    nodes = Node.objects.filter(slots__in=must_be_told(plan).values("slot"))
    keys = [order_key(job, plan, node) for node in nodes]
    orders.forget(OrderRecord.objects.filter(key__in=keys, ended_at__lt=before))
    tell(job, plan)


def order_key(job: Job, plan: Plan, node: Node) -> str:
    """Return the key of the order that tells a node of this announcement in this attempt."""
    return f"set_period:{job.pk}:{plan.announced}:{job.epoch}:{node.name}"


def end_unbegun(job: Job, now: datetime, *, why: str = REPLACED) -> None:
    """Plans that never came into force are over when another one is applied, or with their job."""
    never = {"verdict": "never in force", "told": why}
    job.plans.filter(began_at=None, ended_at=None).update(ended_at=now, measured=never)
