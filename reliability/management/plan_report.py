"""How is a plan told on a terminal: three lines that say what to do, then the figures behind them."""

from collections.abc import Iterator, Mapping
from typing import Any

from reliability.domain.planner import rates
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.published import Table
from reliability.domain.planner.rates import Observed
from reliability.domain.planner.request import Request
from reliability.domain.planner.results import ModelPlan
from reliability.management.console import table

NAMES = {
    "save_stall": "the save stall",
    "recovery": "the recovery",
    "downtime": "the downtime",
    "drain": "the drain",
    "repair": "the repair time",
    "fault_rate": "the number of faults",
}
AS_GIVEN = {
    "target", "node_share", "memory_share", "cluster_availability", "nodes", "standbys", "faults", "observed_nodes",
    "prior",
}  # fmt: skip
UNKNOWN = "-"
WORTH_TELLING = 5e-5
Rows = list[tuple[str, ...]]


def percent(share: float, digits: int = 2) -> str:
    """Write a share as a percentage; 99.996 does not become 100."""
    text = f"{100 * share:.{digits}f}"
    if text == f"{100:.{digits}f}" and share < 1:
        return f"over {100 - 10**-digits:.{digits}f} %"
    return f"{text} %"


def points(share: float) -> str:
    """Write a difference of two shares in percentage points, with more digits where two would say nothing."""
    found = 100 * share
    return f"{found:.2f} points" if abs(found) >= 0.095 or found == 0 else f"{found:.2g} points"


def target(share: float) -> str:
    """Write the target as it was meant, without digits that nobody gave."""
    return f"{100 * share:.12g} %"


def headline(found: Answer) -> list[str]:
    """Return the three lines: how often to save, what that gives, what to improve first."""
    return [_how_often(found), _what_it_gives(found), _what_first(found)]


def _how_often(found: Answer) -> str:
    if found.recommended_s is None:
        return (
            f"No period keeps {target(found.request.target)}, and without faults none is best: the longer the better."
        )
    steps = found.steps
    if steps is not None:
        each = f"every {steps.every_steps} steps" if steps.every_steps > 1 else "after every step"
        return f"Save {each}: every {spoken(steps.period_s)}, from start to start of two saves."
    if found.recommended_s == 0:
        return "Save after every step: a save takes no time."
    if found.exact.period_s is None:
        return f"Save every {spoken(found.recommended_s)} or less often: without faults, the longer the better."
    return f"Save every {spoken(found.recommended_s)}, from start to start of two saves."


def _what_it_gives(found: Answer) -> str:
    ettr = found.recommended_ettr if found.steps is None else found.steps.ettr
    gives = f"That gives {percent(ettr)} effective training time"
    wanted = target(found.request.target)
    interval = found.exact.interval_s
    if interval is None:
        missing = found.request.target - ettr
        told = f"{points(missing)} are missing" if missing > 0 else "long periods only come close to it"
        return f"{gives}: {wanted} is not reachable, {told}."
    if found.why_no_steps is not None:
        return f"{gives}: {found.why_no_steps}."
    low, high = spoken(interval[0]), interval[1]
    return (
        f"{gives}: {wanted} is reachable, with any period from {low} {'on' if high is None else f'to {spoken(high)}'}."
    )


def _what_first(found: Answer) -> str:
    gains = [gain for gain in found.gains if gain.ettr_gain > WORTH_TELLING]
    told = "Improve first: nothing, halving any of the inputs would hardly be noticed."
    if gains:
        first, *others = (f"{_better(gain.name)} adds {points(gain.ettr_gain)}" for gain in gains)
        told = f"Improve first: {first}{f'; then {others[0]}' if others else ''}."
    return told if found.reachable else f"{told} {_way_there(found)}"


def _better(name: str) -> str:
    return "one standby more" if name == "standbys" else f"halving {NAMES[name]}"


def _way_there(found: Answer) -> str:
    """Return what would reach a target that is out of reach."""
    levers = found.levers
    if found.exact.interval_s is not None:
        low, high = found.exact.interval_s
        return f"Periods from {spoken(low)} {'on' if high is None else f'to {spoken(high)}'} would keep it."
    if levers.cheapest is not None:
        stall, recovery = spoken(levers.cheapest.save_stall_s), spoken(levers.cheapest.recovery_s)
        return f"Cheapest way there: a stall of {stall} and a recovery of {recovery}."
    if levers.standbys is not None:
        return f"With {levers.standbys} standbys it would be reachable."
    if levers.mtbf_s is not None:
        return f"Save stall and recovery cannot get there; {spoken(levers.mtbf_s)} between faults would."
    return (
        "Nothing about saves, recovery and faults gets there: the cluster's availability and planned stops leave "
        f"{percent(found.inputs.available)} of the time."
    )


def evidence(found: Answer) -> str:
    """Return the figures as tables under each other."""
    parts = [
        ("THE TWO MODELS", ("exact", "first order"), _models(found)),
        ("LOST PER DAY", ("time", "share"), _lost(found)),
        ("FOR THE TARGET, EACH ALONE", ("now", "needed"), _levers(found)),
        ("STANDBYS", ("figure",), _standbys(found)),
        ("FROM THE COUNTED FAULTS, 90 %", ("from", "to"), _credible(found)),
        ("OTHER PERIODS", ("period", "exact rate", "their own"), _periods(found)),
        ("IF FAULTS COME", ("this period", "best period", "its rate"), _laws(found)),
        ("COPIES", ("every", "of the faults", "undoes"), _tiers(found)),
    ]
    return "\n\n".join(table((title, *columns), rows) for title, columns, rows in parts if rows)


def _models(found: Answer) -> Rows:
    both = (found.exact, found.first_order)

    def row(name: str, tell: Any) -> tuple[str, ...]:
        return (name, *(tell(plan) for plan in both))

    rows = [
        row("best period", lambda plan: _time(plan.period_s)),
        row("work between saves", lambda plan: UNKNOWN if (plan.work_s or 0) < 0 else _time(plan.work_s)),
        row("effective training rate", lambda plan: percent(plan.ettr_max) if plan.ettr_max >= 0 else UNKNOWN),
        row("periods that keep the target", _interval),
    ]
    if found.steps is not None:
        interval = found.steps.interval
        told = UNKNOWN if interval is None else f"{interval[0]} to {'any' if interval[1] is None else interval[1]}"
        rows.append(("steps that keep the target", told, UNKNOWN))
    return rows


def _interval(plan: ModelPlan) -> str:
    if plan.interval_s is None:
        return "none"
    low, high = plan.interval_s
    return f"{spoken(low)} to {spoken(high)}" if high is not None else f"{spoken(low)} and longer"


def _time(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else spoken(seconds)


def _lost(found: Answer) -> Rows:
    names = {"saving": "saving", "rollback": "work done again", "recovery": "recovery", "downtime": "downtime"}
    shares = {name: getattr(found.shares, name) for name in names}
    rows = [(told, spoken(max(0.0, shares[name]) * 86_400), percent(shares[name])) for name, told in names.items()]
    lost = sum(shares.values())
    return [*rows, ("all", spoken(max(0.0, lost) * 86_400), percent(lost))]


def _levers(found: Answer) -> Rows:
    inputs, levers, request = found.inputs, found.levers, found.request
    rows: Rows = [
        ("save stall, at most", spoken(inputs.save_stall_s), _needed(levers.save_stall_s)),
        ("recovery, at most", spoken(inputs.recovery_s), _needed(levers.recovery_s)),
    ]
    if inputs.mtbf_s is None:
        rows = [(name, now, UNKNOWN if needed == "not enough alone" else needed) for name, now, needed in rows]
        return rows if levers.recovery_s is not None else []
    rows.append(("time between faults, at least", spoken(inputs.mtbf_s), _needed(levers.mtbf_s)))
    if request.nodes is not None:
        rows.append(("nodes, at most", str(request.nodes), _count(levers.nodes)))
    if request.repair_s is not None:
        now = UNKNOWN if request.standbys is None else str(request.standbys)
        rows.append(
            ("standbys, at least", now, "not enough alone" if levers.standbys is None else str(levers.standbys))
        )
    if levers.cheapest is not None and not found.exact.feasible:
        pair = f"{spoken(levers.cheapest.save_stall_s)} and {spoken(levers.cheapest.recovery_s)}"
        now = f"{spoken(inputs.save_stall_s)} and {spoken(inputs.recovery_s)}"
        rows.append(("stall and recovery together", now, pair))
    return rows


def _needed(seconds: float | None) -> str:
    return "not enough alone" if seconds is None else spoken(seconds)


def _standbys(found: Answer) -> Rows:
    spares = found.spares
    fleet = found.request.spares_at(found.inputs.faults_per_s)
    if spares is None or fleet is None:
        return []
    return [
        ("standbys", str(spares.standbys)),
        ("nodes in repair on average", f"{spares.load:.3g}"),
        ("lost nodes that find no standby", percent(spares.p_no_standby)),
        ("wait of each of those", spoken(spares.mean_wait_s)),
        ("time spent short of a node", percent(spares.share_short)),
        ("mean downtime of a fault", spoken(spares.mean_downtime_s)),
        ("standbys that leave 1 in 100 without", _count(spares.for_one_percent)),
        ("if nodes fail while it stands still, too", percent(fleet.fleet_p_no_standby)),
    ]


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _credible(found: Answer) -> Rows:
    credible, request = found.credible, found.request
    if credible is None or request.faults is None or request.exposure_s is None:
        return []
    rows: Rows = [
        ("time between faults", *map(spoken, credible.mtbf_s)),
        ("best period", *map(spoken, credible.period_s)),
        ("effective training rate", *map(percent, credible.ettr_max)),
        ("chance that the target is reachable", percent(credible.p_target, 0), ""),
    ]
    if request.exposure_s > 0:
        low, high = rates.garwood(Observed(request.faults, request.exposure_s), credible.level)
        without = ("time between faults without a prior (Garwood)", spoken(1.0 / high))
        rows.append((*without, spoken(1.0 / low) if low > 0 else UNKNOWN))
    return rows


def _periods(found: Answer) -> Rows:
    rows: Rows = []
    if found.present is not None:
        told = f"as now ({'keeps' if found.present.keeps_target else 'misses'} the target)"
        rows.append((told, spoken(found.present.period_s), percent(found.present.ettr), ""))
    for row in found.comparisons:
        theirs = UNKNOWN if row.their_ettr is None else percent(row.their_ettr)
        rows.append((row.name, spoken(row.period_s), percent(row.ettr), theirs))
    return rows


def _laws(found: Answer) -> Rows:
    return [(law.name, percent(law.ettr), spoken(law.best_period_s), percent(law.best_ettr)) for law in found.laws]


def _tiers(found: Answer) -> Rows:
    if found.request.drain_s + found.request.drain_ssd_s == 0:
        return []
    return [
        (
            "on SSD" if tier.name == "SSD" else f"in {tier.name}",
            spoken(tier.every_s),
            percent(tier.fault_share, 1),
            spoken(tier.undone_s),
        )
        for tier in found.tiers
    ]


def sources(request: Request, told: Mapping[str, Mapping[str, Any]]) -> str:
    """Return every value that counts and where it comes from."""
    rows = [(name.replace("_", " "), _given(request, name), each["told"]) for name, each in told.items()]
    return table(("INPUT", "value", "source"), rows)


def _given(request: Request, name: str) -> str:
    per_s = request.faults_per_s
    if name == "mtbf":
        return spoken(1.0 / per_s) if per_s > 0 else "no faults"
    if name == "failures_per_day":
        return f"{per_s * 86_400:.6g}"
    if name == "per_1000_node_days":
        return f"{per_s * 86_400_000 / (request.nodes or 1):.6g}"
    if name == "planned_stops_per_week":
        return f"{request.planned_stops_per_s * 604_800:.6g}"
    if name == "step_time":
        return _time(request.step_s)
    value = getattr(request, name) if name in AS_GIVEN else _time(getattr(request, f"{name}_s"))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def published(shown: Table) -> Iterator[str]:
    """Yield a table of published figures beside the computed ones."""
    yield shown.title
    yield f"Source: {shown.source}"
    yield ""
    yield table(shown.columns, [tuple(map(_cell, row)) for row in shown.rows])
    for note in shown.notes:
        yield f"\n{note}"


def _cell(value: object) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.4g}" if isinstance(value, float) else str(value)
