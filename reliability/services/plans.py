"""Which snapshot period does a job use, and since which step (M10)?"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import Max

from reliability.domain import planner
from reliability.domain.orders import OrderKind
from reliability.domain.planner import FirstOrderInputs, FirstOrderPlan
from reliability.errors import DomainError
from reliability.models import Job, Plan, Rank
from reliability.selectors import core
from reliability.services import clock, dispatch, orders

MARGIN_STEPS = 10
MARGIN_S = 3.0
"""A new period begins this far ahead, so that every rank has heard of it before its first step comes."""
SAME_PERIOD = 0.25
"""The loss is flat around the best period: a quarter more or less costs a few per cent of what saving costs."""


def compute(job: Job, inputs: FirstOrderInputs) -> FirstOrderPlan:
    """Return the period that these inputs give for the job."""
    return planner.first_order(inputs)


def apply(job: Job, *, inputs: FirstOrderInputs, by: str, shown: int | None = None) -> Plan:
    """Order the period that these inputs give, from a step a little ahead of the newest rank.

    `shown` is the number of steps that the person saw: it is what is ordered, unless the job's speed has changed so
    much that it would be another period. Raises DomainError when it has, when the target is out of reach, and when
    the job is over or its speed is not known yet.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if job.state in Job.TERMINAL:
            raise DomainError(f"Job {job.name} is over: its period cannot be changed.")
        step_s = core.planner_defaults(job, now=clock.now())["step_s"]["value"]
        if not step_s:
            raise DomainError(
                f"The speed of job {job.name} is not known yet.", hint="Wait until every rank has made a few steps."
            )
        result = compute(job, inputs)
        if not result.feasible:
            raise DomainError(result.explanation, hint="Nothing was applied.")
        every_steps = _as_shown(shown, planner.steps(result.period_s, inputs.save_stall_s, step_s))
        plan = _keep(job, inputs, result, every_steps, _from_step(job, step_s), by)
        _tell_nodes(job, plan)
        dispatch.changed("overview", f"job:{job.pk}")
    return plan


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


def _from_step(job: Job, step_s: float) -> int:
    newest = Rank.objects.filter(job=job).aggregate(step=Max("step"))["step"] or 0
    return newest + max(MARGIN_STEPS, math.ceil(MARGIN_S / step_s))


def _keep(
    job: Job, inputs: FirstOrderInputs, result: FirstOrderPlan, every_steps: int, from_step: int, by: str
) -> Plan:
    version = (job.plans.aggregate(newest=Max("version"))["newest"] or 0) + 1
    plan = Plan.objects.create(
        job=job,
        version=version,
        inputs=_json(asdict(inputs)),
        outputs=_json(asdict(result)),
        every_steps=every_steps,
        from_step=from_step,
        applied_by=by,
        applied_at=clock.now(),
    )
    earlier = [part for part in job.period_plan if part["from_step"] < from_step]
    job.period_plan = [*earlier, {"from_step": from_step, "every_steps": every_steps}]
    job.every_steps = every_steps
    job.save(update_fields=["period_plan", "every_steps"])
    return plan


def _json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def _tell_nodes(job: Job, plan: Plan) -> None:
    for slot in core.slots_of(job):
        if slot.node is not None and job.epoch > 0:
            orders.issue(
                slot.node,
                kind=OrderKind.SET_PERIOD,
                key=f"set_period:{job.pk}:{plan.version}:{slot.node.name}",
                payload={"period_plan": job.period_plan, "plan_version": plan.version},
                job=job,
                epoch=job.epoch,
            )


def taken_over(plan: Plan) -> bool:
    """Return whether every rank says that it follows this plan or a newer one."""
    return not Rank.objects.filter(job=plan.job, plan_version__lt=plan.version).exists()
