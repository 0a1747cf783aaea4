"""What would it take to reach the target or a stiffer one, and why is this period the best?"""

from dataclasses import dataclass, replace
from typing import Any

from reliability.domain.planner import answer as answers
from reliability.domain.planner import what_if
from reliability.domain.planner.answer import Answer, Levers
from reliability.domain.planner.durations import spoken
from reliability.views.planner.words import number, percent, points, shown_s, standby_gain

STIFFER = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9999)
COLUMNS = 3
NOT_ENOUGH = "not enough alone"


@dataclass(frozen=True, slots=True)
class LeverCell:
    """What one lever would have to be for one target."""

    text: str
    holds: bool = False
    dim: bool = False
    more: str = ""


@dataclass(frozen=True, slots=True)
class LeverRow:
    """One lever: what it is now, what each target asks of it, and what halving it gives."""

    label: str
    bound: str
    now: str
    cells: tuple[LeverCell, ...]
    gain: str = ""
    now_more: str = ""


def levers(found: Answer) -> dict[str, Any]:
    """Return each lever alone, and the stall with the recovery, for the target and the next stiffer ones."""
    target, request = found.inputs.target, found.request
    targets = [target, *[stiffer for stiffer in STIFFER if stiffer > target + 1e-9][: COLUMNS - 1]]
    by_target = [found.levers, *[answers.answer(replace(request, target=value)).levers for value in targets[1:]]]
    gains = {gain.name.removesuffix("_s"): points(gain.ettr_gain) for gain in found.gains}
    rows = [
        _row("Save stall", "at most", request.save_stall_s, by_target, "save_stall_s", gains.get("save_stall", "")),
        _row("Recovery", "at most", request.recovery_s, by_target, "recovery_s", gains.get("recovery", "")),
        _row("Time between faults", "at least", found.inputs.mtbf_s, by_target, "mtbf_s", gains.get("fault_rate", "")),
    ]
    if request.nodes is not None:
        rows.append(_count_row("Nodes", "at most", request.nodes, by_target, "nodes"))
    if request.repair_s is not None:
        one_more = standby_gain(found)
        gain = "" if one_more is None else f"one more: {points(one_more)}"
        rows.append(_count_row("Standbys", "at least", request.standbys, by_target, "standbys", gain))
    rows.append(_together(found, by_target))
    note = (
        "Each alone, with the period chosen anew and all else as it is; a tick: it holds already, so this is the room "
        "there is. Together: the least effort if halving the stall costs as much as halving the recovery; your costs "
        "may differ."
    )
    return {"targets": [number(value) for value in targets], "rows": rows, "note": note}


def _row(label: str, bound: str, now_s: float | None, by_target: list[Levers], name: str, gain: str) -> LeverRow:
    at_least = bound == "at least"
    cells = []
    for levers_of in by_target:
        limit_s = getattr(levers_of, name)
        if limit_s is None:
            cells.append(LeverCell("no limit" if now_s is None else NOT_ENOUGH, now_s is None, dim=True))
            continue
        holds = now_s is None or (now_s >= limit_s if at_least else now_s <= limit_s)
        cells.append(LeverCell(spoken(limit_s), holds))
    now = "none" if now_s is None else spoken(now_s)
    return LeverRow(label, bound, now, tuple(cells), gain)


def _count_row(label: str, bound: str, now: int | None, by_target: list[Levers], name: str, gain: str = "") -> LeverRow:
    cells = []
    for levers_of in by_target:
        limit = getattr(levers_of, name)
        if limit is None:
            cells.append(LeverCell(NOT_ENOUGH, dim=True))
            continue
        holds = now is not None and (now >= limit if bound == "at least" else now <= limit)
        cells.append(LeverCell(f"{limit}", holds))
    return LeverRow(label, bound, "none given" if now is None else f"{now}", tuple(cells), gain)


def _together(found: Answer, by_target: list[Levers]) -> LeverRow:
    stall_s, recovery_s = found.request.save_stall_s, found.request.recovery_s
    cells = []
    for levers_of in by_target:
        pair = levers_of.cheapest
        if pair is None:
            cells.append(LeverCell("not enough together", dim=True))
        elif pair.save_stall_s >= stall_s * (1 - 1e-9) and pair.recovery_s >= recovery_s * (1 - 1e-9):
            cells.append(LeverCell("as they are", holds=True))
        else:
            cells.append(LeverCell(f"{spoken(pair.save_stall_s)} and", more=spoken(pair.recovery_s)))
    label, now = "Save stall and recovery", f"{spoken(stall_s)} and"
    return LeverRow(label, "together", now, tuple(cells), now_more=spoken(recovery_s))


def why(found: Answer) -> dict[str, Any]:
    """Return the first-order explanation with this job's numbers, and what other rules say."""
    rows = [
        {
            "name": row.name,
            "period": spoken(row.period_s),
            "ettr": percent(row.ettr),
            "their": percent(row.their_ettr) if row.their_ettr is not None else "",
        }
        for row in found.comparisons
    ]
    return {
        "formula": _formula(found),
        "lines": _lines(found),
        "rows": rows,
        "laws": _laws(found),
        "tiers": _tiers(found),
    }


def _laws(found: Answer) -> list[tuple[str, str, str, str]]:
    """Return what other laws of faults make of the period."""
    period_s = shown_s(found)
    laws = what_if.under_laws(found.inputs, period_s) if period_s else ()
    return [(law.name, percent(law.ettr), spoken(law.best_period_s), percent(law.best_ettr)) for law in laws]


def _tiers(found: Answer) -> list[tuple[str, str, str, str]]:
    """Return how often each tier gets a copy, where not every fault needs the last one."""
    period_s, request = shown_s(found), found.request
    if period_s is None or request.node_share == 1.0 or found.inputs.mtbf_s is None:
        return []
    tiers = what_if.tiers(request, period_s)
    return [(each.name, percent(each.fault_share, 0), spoken(each.every_s), spoken(each.undone_s)) for each in tiers]


def _formula(found: Answer) -> str:
    inputs, young = found.inputs, found.first_order
    if inputs.mtbf_s is None or young.period_s is None:
        return ""
    stall, between = spoken(inputs.save_stall_s), spoken(inputs.mtbf_s)
    return f"period ≈ √(2 · stall · time between faults) = √(2 · {stall} · {between}) = {spoken(young.period_s)}"


def _lines(found: Answer) -> list[str]:
    inputs, exact = found.inputs, found.exact
    if inputs.mtbf_s is None or exact.period_s is None:
        return ["Without faults every save is only a cost: the longer the period, the better."]
    told = [
        "A save costs its stall once a period; a fault costs half a period of work on average. The sum is least where "
        "both are about equal. Recovery and downtime are paid at every fault whatever the period is: they lower the "
        "rate, and do not move the best period.",
        f"The exact answer for faults at random times is {spoken(exact.period_s)}, {percent(exact.ettr_max)}"
        + (
            f"; the first-order formula promises {percent(found.first_order.ettr_max)}, never more than the exact one."
            if found.first_order.ettr_max >= 0
            else "; here the first-order formula no longer describes the job."
        ),
    ]
    if inputs.drain_s >= exact.period_s * (1 - 1e-9):
        told.append(
            f"Here the drain decides: a save must be durable ({spoken(inputs.drain_s)}) before the next begins."
        )
    return told
