"""The one JSON form of an answer, for page, command, REST and what is kept with a plan."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from reliability.domain.planner.answered import Answer
from reliability.domain.planner.request import Request
from reliability.domain.planner.results import ModelPlan
from reliability.domain.planner.steps import StepPlan
from reliability.domain.planner.values import DAY_S

_ROUNDING = 1e-9
_REQUEST = tuple(field.name for field in fields(Request))


def as_json(found: Answer, *, sources: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer as finite numbers, text, lists and null.

    At the top is the exact model, with the `shares` of the recommended steps or period; `first_order` holds the same
    keys, raw: its rates may be negative where it describes nothing, and then it has no shares. `reachable` is the
    verdict, and `why_no_steps` says why it is none where a period alone would do. `inputs` is the request as it was
    made, `inputs.effective` what the models were given (`drain_s` the mean over all faults), `inputs.sources` what the
    caller knows about where each value comes from.
    """
    lost = {name: share * DAY_S for name, share in asdict(found.shares).items() if name != "useful"}
    tree = {
        **_model(found.exact),
        "shares": asdict(found.shares),
        "reachable": found.reachable,
        "why_no_steps": found.why_no_steps,
        "first_order": {**_model(found.first_order), "steps": _steps(found.first_order_steps)},
        "inputs": _inputs(found, sources or {}),
        "recommended_s": found.recommended_s,
        "recommended_ettr": found.recommended_ettr,
        "steps": _steps(found.steps),
        "present": None if found.present is None else asdict(found.present),
        "spares": None if found.spares is None else asdict(found.spares),
        "credible": None if found.credible is None else asdict(found.credible),
        "levers": asdict(found.levers),
        "gains": [asdict(gain) for gain in found.gains],
        "comparisons": [asdict(row) for row in found.comparisons],
        "lost_per_day_s": lost,
        "laws": [asdict(law) for law in found.laws],
        "tiers": [asdict(tier) for tier in found.tiers],
    }
    written: dict[str, Any] = _finite(tree)
    return written


def _steps(plan: StepPlan | None) -> dict[str, Any] | None:
    return None if plan is None else asdict(plan)


def _model(plan: ModelPlan) -> dict[str, Any]:
    tree = asdict(plan)
    if min(tree["shares"].values()) < -_ROUNDING:
        tree["shares"] = None
    return tree


def _inputs(found: Answer, sources: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: getattr(found.request, name) for name in _REQUEST}
    effective = {
        "mtbf_s": found.inputs.mtbf_s,
        "downtime_s": found.inputs.downtime_s,
        "drain_s": found.inputs.mean_drain_s,
        "tiers": found.inputs.tiers,
        "faults_per_s": found.inputs.faults_per_s,
        "available": found.inputs.available,
    }
    return {**given, "effective": effective, "sources": dict(sources)}


def _finite(value: Any) -> Any:
    """Return the tree with null in place of what JSON has no number for; pairs become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
