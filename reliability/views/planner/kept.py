"""Which plans were applied to a job, what came of each, and what is planned by itself?"""

from typing import Any

from django.utils import timezone

from reliability.domain.planner.durations import spoken
from reliability.models import AutoPlan, Job, Plan
from reliability.plan_quantities import BY_NAME, in_words
from reliability.selectors import plan_history
from reliability.selectors.plan_history import PlanResult, TakeOver

LOOKS = {"as planned": ("ok", "check"), "above plan": ("ok", "check"), "below plan": ("bad", "x")}
BEGIN_WITH = {"change_ratio": "1.25", "least_interval": "1 h"}
TOO_EARLY = ("mute", "clock")


def context(job: Job | None) -> dict[str, Any]:
    """Return the plans of a job with their results, and how far its newest is taken over."""
    if job is None:
        return {"kept": [], "takeover": None}
    now = timezone.now()
    results = plan_history.history(job, now=now)
    newest = results[0].plan if results else None
    return {
        "kept": [_row(result) for result in results],
        "takeover": {"plan": newest, **_parts(plan_history.take_over(newest, now=now))} if newest else None,
        "auto_plan": automatic(job),
    }


def takeover(plan: Plan) -> TakeOver:
    """Return how far a plan is taken over now."""
    return plan_history.take_over(plan, now=timezone.now())


def automatic(job: Job) -> AutoPlan | None:
    """Return the limits within which the job is planned by itself, if any were ever set."""
    return AutoPlan.objects.filter(job=job).first()


def limits(job: Job) -> dict[str, str]:
    """Return the limits as the form shows them: as they were set, else around the period of now."""
    known = automatic(job)
    if known is None:
        return {"target": "0.97", "shortest_period": "", "longest_period": "", **BEGIN_WITH}
    return {
        "target": f"{known.target:.6g}",
        "shortest_period": spoken(known.shortest_period_s),
        "longest_period": spoken(known.longest_period_s),
        "change_ratio": f"{known.change_ratio:.6g}",
        "least_interval": spoken(known.least_interval_s),
    }


def _parts(state: TakeOver) -> dict[str, Any]:
    look = ("ok", "check", "in force") if state.done and state.begun else ("info", "clock", "announced")
    if not state.done:
        look = ("info", "refresh", "taking over")
    return {"told": state.told.rstrip("."), "done": state.done and state.begun, "look": look}


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
