"""How are the values of a form, a command line or a JSON body read into a request, with every mistake told at once?

Values are numbers or text; times are seconds or text such as `5m`. Nothing given here raises: what is wrong comes back
as a list of errors, each with the name under which the value was given and a hint that says what would be right.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from reliability.domain.planner import exact, values
from reliability.domain.planner.durations import LEAST_S, LONGEST_S, shown, spoken
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.request import PRIORS, Request
from reliability.domain.planner.values import DAY_S, WEEK_S, Reader
from reliability.errors import InvalidInput

FIELDS: dict[str, Reader] = {
    "save_stall": values.duration,
    "mtbf": values.mtbf,
    "failures_per_day": values.per_time(8.64e7, "2.4"),
    "per_1000_node_days": values.per_time(1e9, "4"),
    "faults": values.count(0, 10_000_000, "3"),
    "exposure": values.duration,
    "observed_nodes": values.count(1, 10_000_000, "128"),
    "prior": values.one_of(*PRIORS),
    "recovery": values.duration,
    "downtime": values.duration,
    "drain": values.duration,
    "drain_ssd": values.duration,
    "node_share": values.part_of_faults,
    "memory_share": values.part_of_faults,
    "cluster_availability": values.cluster_availability,
    "target": values.target,
    "step_time": values.positive_duration,
    "nodes": values.count(1, 10_000_000, "128"),
    "standbys": values.count(0, 10_000, "4"),
    "repair": values.positive_duration,
    "planned_stops_per_week": values.per_time(1e6, "2"),
    "period": values.positive_duration,
}
ALIASES = {
    "save_stall_s": "save_stall",
    "mtbf_s": "mtbf",
    "recovery_s": "recovery",
    "downtime_s": "downtime",
    "drain_s": "drain",
    "drain_ssd_s": "drain_ssd",
    "step_time_s": "step_time",
    "step_s": "step_time",
    "repair_s": "repair",
    "exposure_s": "exposure",
    "period_s": "period",
}
RATE_NAMES = ("mtbf", "failures_per_day", "per_1000_node_days", "faults", "exposure")
COUNTED_NAMES = ("prior", "observed_nodes")
"""What says more about counted faults, and means nothing without them."""
RATE_HINT = "Give one of: mtbf; failures_per_day; per_1000_node_days with nodes; faults with exposure."
REQUIRED = {
    "save_stall": "Give how long one save blocks training, such as 30s.",
    "recovery": "Give how long it takes from the restart until training goes on, such as 10m.",
    "target": "Give the share of time that must count, such as 0.97.",
}
_SECONDS = {name: f"{name}_s" for name in ("save_stall", "recovery", "downtime", "drain", "drain_ssd", "repair")}
_AS_IT_IS = (
    "target",
    "node_share",
    "memory_share",
    "cluster_availability",
    "nodes",
    "standbys",
    "prior",
    "faults",
    "observed_nodes",
)
_REQUEST_NAMES = {
    **_SECONDS,
    **{name: name for name in _AS_IT_IS},
    "exposure": "exposure_s",
    "step_time": "step_s",
    "period": "period_s",
}
_MOST_ERRORS = 50
_LEAST_MTBF_S = 1e-3

_MOST_GUESSES = 20
"""A near name is looked for so often: it takes long, and nobody reads more."""


@dataclass(slots=True)
class _Reading:
    """What was read so far. `names` tells under which name a value was given."""

    prefix: str
    clean: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    errors: list[InvalidInput] = field(default_factory=list)

    def called(self, name: str) -> str:
        """Return the name to show for a value."""
        return self.prefix + self.names.get(name, name)

    def refuse(self, name: str, message: str, hint: str) -> None:
        """Note what is wrong with a value; the first thing said about it stands."""
        if name not in self.wrong:
            self.wrong.add(name)
            self.errors.append(InvalidInput(self.called(name), message, hint=hint))

    def sound(self, *names: str) -> bool:
        """Tell whether nothing is wrong with these."""
        return self.wrong.isdisjoint(names)


def told(error: InvalidInput) -> str:
    """Return the sentence of an error without the name of its field: what is wrong. What would be right."""
    message = error.message.removeprefix(f"{error.field}: ")
    return f"{message}. {error.hint}" if error.hint else f"{message}."


def canonical(name: str) -> str:
    """Return the name of FIELDS for a name under which a value was given."""
    return ALIASES.get(name, name)


def filled(given: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    """Return what was given, and from what is known the rest; one way of telling the rate of faults replaces all."""
    there = {canonical(name) for name, value in given.items() if not _empty(value)}
    if there & set(RATE_NAMES):
        there |= {*RATE_NAMES, *COUNTED_NAMES}
    return {**{name: value for name, value in known.items() if canonical(name) not in there}, **given}


def unused(given: Mapping[str, object], values: Mapping[str, object]) -> list[InvalidInput]:
    """Return an error for each value of `given` that changes nothing beside all `values`, which hold the known too."""
    there = {canonical(name) for name, value in values.items() if not _empty(value)}
    counted = "faults", "is of no use without counted faults", "Give faults and exposure, or leave it out."
    wanted = {
        "standbys": ("repair", "is of no use without repair", "Give the mean time of a repair too, such as 1d."),
        "repair": ("standbys", "is of no use without standbys", "Give how many nodes stand by too; 0 is possible."),
        **dict.fromkeys(COUNTED_NAMES, counted),
    }
    found = []
    for name, value in given.items():
        other, message, hint = wanted.get(canonical(name), ("", "", ""))
        if other and not _empty(value) and other not in there:
            found.append(InvalidInput(name, message, hint=hint))
    return found


def read(given: Mapping[str, object], *, prefix: str = "") -> tuple[Request | None, list[InvalidInput]]:
    """Return the request and no errors, or None and all errors; see FIELDS for the names.

    The field of an error is `prefix` and the name as it was given. Never raises, whatever the values are.
    """
    reading = _Reading(prefix)
    _take(reading, given)
    for name, hint in REQUIRED.items():
        if name not in reading.names:
            reading.refuse(name, "is missing", hint)
    _check_rate(reading)
    _check_mtbf(reading)
    _check_shares(reading)
    _check_period(reading)
    request = None if reading.errors else _request(reading)
    return (None, reading.errors[:_MOST_ERRORS]) if reading.errors else (request, [])


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _take(reading: _Reading, given: Mapping[str, object]) -> None:
    """Read every value by itself."""
    for given_name, value in given.items():
        name = canonical(str(given_name))
        if name not in FIELDS:
            _refuse_name(reading, str(given_name))
        elif not _empty(value):
            _read_one(reading, name, str(given_name), value)


def _read_one(reading: _Reading, name: str, given_name: str, value: object) -> None:
    if name in reading.names:
        first = reading.called(name)
        reading.errors.append(
            InvalidInput(reading.prefix + given_name, f"is the same as {first}", hint="Give one of them.")
        )
        return
    reading.names[name] = given_name
    try:
        reading.clean[name] = FIELDS[name](value, reading.called(name))
    except InvalidInput as error:
        reading.wrong.add(name)
        reading.errors.append(error)


def _refuse_name(reading: _Reading, given_name: str) -> None:
    known = [*FIELDS, *ALIASES] if len(reading.errors) < _MOST_GUESSES else []
    near = get_close_matches(given_name[:60].lower(), known, n=1, cutoff=0.5)
    hint = f"Did you mean {reading.prefix}{near[0]}?" if near else f"One of: {', '.join(FIELDS)}."
    reading.errors.append(
        InvalidInput(reading.prefix + shown(given_name[:60]).strip("'"), "is not a name known here", hint=hint)
    )


def _ways(reading: _Reading) -> list[str]:
    """Return in which ways the rate of faults was told, by the first name of each."""
    ways = [name for name in RATE_NAMES[:3] if name in reading.names]
    counted = [name for name in RATE_NAMES[3:] if name in reading.names]
    return ways + counted[:1]


def _check_rate(reading: _Reading) -> None:
    ways = _ways(reading)
    if not ways:
        reading.refuse("mtbf", "is missing", RATE_HINT)
    for name in ways[1:]:
        reading.refuse(name, f"tells a second time how often faults come, after {reading.called(ways[0])}", RATE_HINT)
    if "faults" in ways and "exposure" not in reading.names:
        reading.refuse("exposure", "is missing", "Give the running time in which the faults were counted, such as 7d.")
    if "exposure" in ways and "faults" not in reading.names:
        reading.refuse("faults", "is missing", "Give how many faults came in the exposure; 0 is possible.")
    if reading.clean.get("exposure") == 0 and reading.clean.get("prior") != "fleet":
        reading.refuse("exposure", "0 is no time to count faults in", "Give the running time, such as 7d.")
    per_node = "per_1000_node_days" in ways or (reading.clean.get("prior") == "fleet" and "faults" in ways)
    if per_node and "nodes" not in reading.names:
        reading.refuse("nodes", "is missing", "The rate is one per node: give the number of nodes, such as 128.")


def _check_shares(reading: _Reading) -> None:
    memory, node = reading.clean.get("memory_share", 0.0), reading.clean.get("node_share", 1.0)
    if memory > 0 and reading.sound("node_share", "memory_share") and memory + node > 1 + 1e-9:
        most, left = (math.floor(1e4 * (1.0 - share)) / 1e4 for share in (memory, node))
        hint = f"Both are shares of all faults: give a {reading.prefix}node_share of at most {most:g}"
        hint += f", or at most {left:g} here." if left else "; without one every fault loses its node."
        reading.refuse("memory_share", f"{memory:g} and a node share of {node:g} are more than all faults", hint)


def _check_period(reading: _Reading) -> None:
    period_s, stall_s = reading.clean.get("period"), reading.clean.get("save_stall", 0.0)
    step_s = reading.clean.get("step_time", 0.0)
    if period_s is None:
        return
    if step_s and period_s < (step_s + stall_s) * (1 - 1e-9):
        least = spoken(step_s + stall_s)
        hint = f"A period runs from start to start of two saves: with one step and one save it is {least}."
        reading.refuse("period", f"{spoken(period_s)} is shorter than one step and its save", hint)
    elif period_s <= stall_s:
        hint = f"A period runs from start to start of two saves: give more than {spoken(stall_s)}."
        reading.refuse("period", f"{spoken(period_s)} is no longer than the save itself", hint)


def _faults_per_s(reading: _Reading) -> float | None:
    """Return the rate of faults, however it was told; None while something about it is wrong."""
    ways, clean = _ways(reading), reading.clean
    if not ways or not reading.sound(*RATE_NAMES):
        return None
    if ways[0] == "mtbf":
        return 1.0 / clean["mtbf"] if clean["mtbf"] is not None else 0.0
    if ways[0] == "failures_per_day":
        return float(clean["failures_per_day"] / DAY_S)
    if ways[0] == "per_1000_node_days":
        return float(clean["per_1000_node_days"] / 1000 * clean["nodes"] / DAY_S) if "nodes" in clean else None
    return _counted_per_s(reading)


def _counted_per_s(reading: _Reading) -> float | None:
    """Return the posterior mean of counted faults, on the nodes that are asked about."""
    clean = reading.clean
    if clean.get("prior") == "fleet" and "nodes" not in clean:
        return None
    names = ("faults", "prior", "nodes", "observed_nodes", "node_share")
    known = {name: clean[name] for name in names if name in clean}
    return Request(save_stall_s=0.0, recovery_s=0.0, target=0.5, exposure_s=clean["exposure"], **known).faults_per_s


def _check_mtbf(reading: _Reading) -> None:
    """Refuse faults that come before the job has recovered from the last."""
    per_s = _faults_per_s(reading)
    if not per_s:
        return
    name, mtbf_s, recovery_s = _ways(reading)[0], 1.0 / per_s, reading.clean.get("recovery", 0.0)
    if not _LEAST_MTBF_S <= mtbf_s <= LONGEST_S:
        told = "less than a millisecond" if mtbf_s < _LEAST_MTBF_S else "more than 30 000 years"
        hint = "It is that of the whole job while it runs, such as 7.9h; none means no faults."
        reading.refuse(name, f"makes the time between faults {told}", hint)
    elif mtbf_s < recovery_s * (1 - 1e-12):
        hint = (
            f"Give at least {spoken(recovery_s)} between faults, or a shorter recovery: "
            "a job that is hit again before it has recovered makes no progress."
        )
        message = f"a fault every {spoken(mtbf_s)} comes sooner than the recovery of {spoken(recovery_s)} is over"
        reading.refuse(name, message, hint)


def _request(reading: _Reading) -> Request | None:
    """Return the request when the values go together."""
    fields = {to: reading.clean[name] for name, to in _REQUEST_NAMES.items() if name in reading.clean}
    if "memory_share" in fields:
        fields["memory_share"] = min(fields["memory_share"], 1.0 - fields.get("node_share", 1.0))
    fields["planned_stops_per_s"] = reading.clean.get("planned_stops_per_week", 0.0) / WEEK_S
    per_s = _faults_per_s(reading)
    if per_s and "faults" not in fields:
        fields["mtbf_s"] = reading.clean.get("mtbf", 1.0 / per_s)
    try:
        request = Request(**fields)
        _check_step(reading, request, request.inputs)
    except InvalidInput as error:
        _refuse_together(reading, error)
        return None
    return request


def _refuse_together(reading: _Reading, error: InvalidInput) -> None:
    """Say under the name that was given what the model refused."""
    back = {to: name for name, to in _REQUEST_NAMES.items()}
    back |= {"mtbf_s": _ways(reading)[0], "planned_stops_per_s": "planned_stops_per_week"}
    message = error.message.removeprefix(f"{error.field}: ")
    reading.refuse(back.get(error.field, error.field), message, error.hint or "Give a value that a job can have.")


def _check_step(reading: _Reading, request: Request, inputs: Inputs) -> None:
    """Refuse a step so long that the target is lost by it alone: one step a save, and already too late."""
    step_s = request.step_s
    if step_s is None:
        return
    shortest_s = step_s + inputs.save_stall_s
    hopeless = exact.best(inputs)[1] < inputs.target * (1 - 1e-9)
    if hopeless or exact.ettr_at(inputs, shortest_s) >= inputs.target:
        return
    plan = exact.plan(inputs)
    if not plan.feasible or plan.interval_s is None or plan.interval_s[1] is None:
        return
    if shortest_s > plan.interval_s[1] * (1 + 1e-12):
        best = spoken(plan.interval_s[1])
        message = f"{spoken(step_s)} is too long: saving after every step would be too seldom for the target"
        hint = f"Periods of up to {best} keep it: give the time of one step, at most "
        longest_s = max(plan.interval_s[1] - inputs.save_stall_s, LEAST_S)
        reading.refuse("step_time", message, f"{hint}{spoken(longest_s)}, or a lower target.")
