"""Which plans were applied to a job, what came of each, and what is planned by itself?"""

from typing import Any

from django.db.models import Max
from django.utils import timezone

from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken
from reliability.models import AutoPlan, Job, Plan
from reliability.plan_quantities import BY_NAME, in_words
from reliability.selectors import plan_history
from reliability.selectors.plan_history import PlanResult, TakeOver
from reliability.templatetags.stepkeeper import grouped

LOOKS = {"as planned": ("ok", "check"), "above plan": ("ok", "check"), "below plan": ("bad", "x")}
BEGIN_WITH = {"change_ratio": "1.25", "least_interval": "1 h"}
TOO_EARLY = ("mute", "clock")
LEAST_S, MOST_S = 1.0, 365.25 * 86_400.0


def context(job: Job | None) -> dict[str, Any]:
    """Return the plans of a job with their results, and how far its newest is taken over."""
    if job is None:
        return {"kept": [], "takeover": None}
    now = timezone.now()
    results = plan_history.history(job, now=now)
    newest = results[0].plan if results else None
    return {
        "kept": [_row(result) for result in results],
        "takeover": _parts(job, newest, plan_history.take_over(newest, now=now)) if newest else None,
        "seen": newest.version if newest else 0,
        "auto_plan": automatic(job),
    }


def automatic(job: Job) -> AutoPlan | None:
    """Return the limits within which the job is planned by itself, if any were ever set."""
    return AutoPlan.objects.filter(job=job).first()


def limits(job: Job, found: Answer | None) -> dict[str, str]:
    """Return the limits as the form shows them: as they were set, else the target and the range of the best period."""
    known = automatic(job)
    if known is None:
        return {"target": f"{found.inputs.target:.6g}" if found else "0.97", **_range(found), **BEGIN_WITH}
    return {
        "target": f"{known.target:.6g}",
        "shortest_period": spoken(known.shortest_period_s),
        "longest_period": spoken(known.longest_period_s),
        "change_ratio": f"{known.change_ratio:.6g}",
        "least_interval": spoken(known.least_interval_s),
    }


def _range(found: Answer | None) -> dict[str, str]:
    """Return where the best period lies: with 90 % probability where faults were counted, else around it."""
    if found is None or not found.exact.period_s:
        return {"shortest_period": "", "longest_period": ""}
    best_s = found.exact.period_s
    low_s, high_s = found.credible.period_s if found.credible else (best_s / 2, best_s * 2)
    low_s, high_s = min(max(low_s, LEAST_S), best_s), min(max(high_s, best_s * 1.1), MOST_S)
    return {"shortest_period": spoken(low_s), "longest_period": spoken(high_s)}


def _parts(job: Job, plan: Plan, state: TakeOver) -> dict[str, Any]:
    look = ("ok", "check", "in force") if state.done and state.begun else ("info", "clock", "announced")
    if not state.done:
        look = ("info", "refresh", "taking over")
    told = state.told.rstrip(".")
    if state.begun and job.state == Job.State.RUNNING and plan.ended_at is None:
        newest = job.ranks.aggregate(step=Max("step"))["step"] or 0
        told += f"; next save at step {grouped((newest // plan.every_steps + 1) * plan.every_steps)}"
    return {"plan": plan, "told": told, "done": state.done and state.begun, "look": look}


def _row(result: PlanResult) -> dict[str, Any]:
    return {
        "plan": result.plan,
        "verdict": result.verdict,
        "told": result.told.removesuffix(f": {result.verdict}"),
        "look": LOOKS.get(result.verdict, TOO_EARLY),
        "inputs": [
            (BY_NAME[name].label, _value(name, source.get("value")), _source(source))
            for name, source in result.plan.inputs.items()
            if name in BY_NAME and isinstance(source, dict)
        ],
    }


def _value(name: str, value: object) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if name == "mtbf":
        return spoken(float(value)) if known else "none"  # type: ignore[arg-type]
    return in_words(BY_NAME[name], float(value)) if known else "unknown"  # type: ignore[arg-type]


def _source(source: dict[str, Any]) -> str:
    if source.get("source") == "entered":
        return f"entered by {source.get('by', '')}"
    return str(source.get("told", ""))
