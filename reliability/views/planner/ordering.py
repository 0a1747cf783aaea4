"""Which periods may be ordered from the page: the best one, the best of a missed target, or one of a person's own?"""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import seconds
from reliability.domain.planner.steps import MOST_STEPS
from reliability.errors import InvalidInput
from reliability.models import Job
from reliability.plan_forms import PERIOD, PlanForm
from reliability.templatetags.stepkeeper import grouped
from reliability.views.planner.asked import Asked
from reliability.views.planner.words import WORTH_TELLING, percent, shown_ettr, spoken, step_time, steps


@dataclass(frozen=True, slots=True)
class Own:
    """A period that a person gave: what is told of it, and in how many steps it can be ordered."""

    told: str
    every_steps: int | None = None
    missed: bool = False


def offered(request: HttpRequest, found: Asked, answer: Answer) -> dict[str, Any]:
    """Return what can be ordered, or the true reason why nothing can."""
    job, own = found.job, _own(found.form, answer)
    why_not = _why_not(request, job, answer)
    every = answer.steps.every_steps if answer.steps else None
    shown: dict[str, Any] = {"own": own, "orders": job is not None and not why_not, "apply": False, "missed": False}
    if job is None or why_not or every is None:
        return shown | {"apply_words": why_not}
    shown["seen"] = job.plans.values_list("version", flat=True).first() or 0
    if answer.inputs.mtbf_s is None and answer.present and answer.present.keeps_target:
        told = "The period of now keeps the target. To save less often, give a period of your own on the left."
        return shown | {"apply_words": told}
    if every > MOST_STEPS:
        most = f"{grouped(MOST_STEPS)} steps are the most that can be ordered, and this is every {grouped(every)}."
        return shown | {"apply_words": f"{most} Give a period of your own on the left: the loss is next to nothing."}
    shown |= {"apply": answer.reachable or shown_ettr(answer) > 0, "missed": not answer.reachable}
    return shown | {"apply_words": _consequences(job, every, answer)}


def _why_not(request: HttpRequest, job: Job | None, answer: Answer) -> str:
    if job is None:
        return "Choose a job to apply a plan to it."
    if not request.user.has_perm("reliability.apply_plan"):
        return "Applying a period needs the operator role."
    if job.state in Job.TERMINAL:
        return f"{job.name} is over: nothing can be applied to it."
    if answer.request.step_s is None:
        return "It can be applied once the job has made steps: the time of a step is not known yet."
    if answer.steps is None:
        return "No period can be applied: without faults, and with the target out of reach, none is the best one."
    return ""


def _consequences(job: Job, every: int, answer: Answer) -> str:
    change = "as now" if every == job.every_steps else f"instead of every {grouped(job.every_steps)}"
    told = (
        f"All ranks of {job.name} save every {steps(every)}, {change}, from one step on that is announced a little "
        "ahead of the fastest. Nothing restarts; the plan is kept below with its inputs and your name."
    )
    if answer.reachable:
        return told
    return f"The target is missed whatever is applied; below is what would have to change. {told}"


def _own(form: PlanForm, answer: Answer) -> Own | None:
    """Return what the period gives that a person gave; None for none."""
    if not form.own_period:
        return None
    step_s, stall_s, count = answer.request.step_s, answer.request.save_stall_s, form.own_steps
    if step_s is None and count is not None:
        return Own("Your own period: what it gives can be told once the time of a step is known.")
    try:
        period_s = stall_s if count is not None else seconds(form.own_period, PERIOD)
        if step_s is not None:
            count = count if count is not None else max(1, round(min((period_s - stall_s) / step_s, MOST_STEPS + 1)))
            period_s = count * step_s + stall_s
        rate = exact.ettr_at(answer.inputs, period_s)
    except InvalidInput as error:
        return Own(f"Your own period cannot be planned with: {error.message}.")
    return _told(answer, count if count is not None and count <= MOST_STEPS else None, period_s, rate)


def _told(answer: Answer, count: int | None, period_s: float, rate: float) -> Own:
    less, missed = shown_ettr(answer) - rate, rate < answer.inputs.target * (1 - 1e-12)
    every = f"every {steps(count)} of {step_time(answer)}, {spoken(period_s)}" if count else f"every {spoken(period_s)}"
    beside = "as good as the best" if less < WORTH_TELLING else f"{100 * less:.2f} points less than at best"
    kept = "It misses the target." if missed else "It keeps the target."
    return Own(f"Your own period, {every}: {percent(rate)}, {beside}. {kept}", count, missed)
