"""What is asked of the planner when some values are given and the rest is known of a job, and where is each from?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from reliability.domain.planner.reading import FIELDS, RATE_NAMES, canonical, filled, read, unused
from reliability.domain.planner.request import Request
from reliability.errors import InvalidInput
from reliability.models import Job
from reliability.selectors import plan_inputs, plan_recent
from reliability.selectors.plan_inputs import Known

ENTERED = {"kind": "entered", "told": "entered"}
NOT_GIVEN = {"kind": "default", "told": "default: not given"}
DEFAULTED = (
    "downtime", "drain", "drain_ssd", "node_share", "memory_share", "cluster_availability", "planned_stops_per_week",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, or all that is wrong with the values; and the source of each value, name -> {kind, told, ...}.

    `unused`: what was given and changes nothing, each as the error that says so. Who asks decides whether it is one.
    """

    request: Request | None
    errors: list[InvalidInput]
    sources: dict[str, dict[str, Any]]
    unused: list[InvalidInput]


def asked(given: Mapping[str, object], job: Job | None, *, now: datetime, prefix: str = "") -> Asked:
    """Return what is asked: the values that are given, and for the others what is known of the job, if there is one.

    The names of `given` are those of `reading.read`; what is None was not given, while an empty text is: it leaves out
    what is known. Without a job nothing is read from the database.
    """
    given = {name: value for name, value in given.items() if value is not None or canonical(name) not in FIELDS}
    known = {} if job is None else {**plan_inputs.defaults(job), **plan_recent.lately(job, now=now)}
    values = filled(given, _values(job, known, given))
    request, errors = read(values, prefix=prefix)
    return Asked(request, errors, _sources(given, values, known), unused(given, values))


def _values(job: Job | None, known: Mapping[str, Known], given: Mapping[str, object]) -> dict[str, object]:
    """Return the known values under the names of `read`, for what was not given."""
    found: dict[str, object] = {name: each.value for name, each in known.items() if each.value is not None}
    counted = known.get("mtbf")
    if counted is not None and counted.faults is not None:
        del found["mtbf"]
        found |= {"faults": counted.faults, "exposure": counted.exposure_s, "prior": counted.prior or None}
        found["observed_nodes"] = known["nodes"].value  # on so many they were counted, whatever is planned
    if any(canonical(name) == "node_share" for name in given):
        found.pop("memory_share", None)  # shares of the same faults: one that was given is not mixed with a known one
    if job is not None:
        found["period"] = plan_inputs.present_period_s(job, _overridden(known, given))
    return found


def _overridden(known: Mapping[str, Known], given: Mapping[str, object]) -> dict[str, Known]:
    """Return what is known with the step time and the stall that were given, so that the present period fits them."""
    better = dict(known)
    for name, value in given.items():
        if canonical(name) in {"step_time", "save_stall"}:
            try:
                seconds = FIELDS[canonical(name)](value, name)
            except InvalidInput:
                continue  # told by `read`
            if isinstance(seconds, float):
                better[canonical(name)] = replace(known[canonical(name)], value=seconds)
    return better


def _sources(
    given: Mapping[str, object], values: Mapping[str, object], known: Mapping[str, Known]
) -> dict[str, dict[str, Any]]:
    """Return the source of every value that counts; what tells the rate of faults stands under `mtbf` too."""
    entered = {canonical(name) for name in given if name in values and values[name] not in (None, "")}
    found: dict[str, dict[str, Any]] = {}
    for name in FIELDS:
        if name in entered or (name == "mtbf" and entered & set(RATE_NAMES)):
            found[name] = ENTERED
        elif name in known and (name in values or (name == "mtbf" and "faults" in values)):
            found[name] = _told(known[name])
        elif name in DEFAULTED:
            found[name] = NOT_GIVEN
    return found


def _told(known: Known) -> dict[str, Any]:
    return {"kind": known.kind, "told": known.told, "samples": known.samples, "low": known.low, "high": known.high}
