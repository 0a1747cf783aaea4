"""What would it take to reach the target or a stiffer one, and why is this period the best?"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from reliability.domain.planner import answer as answers
from reliability.domain.planner import exact, what_if
from reliability.domain.planner import levers as levering
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.request import Request
from reliability.errors import InvalidInput
from reliability.templatetags.stepkeeper import grouped
from reliability.views.planner.words import number, percent, points, spoken

STIFFER = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9999)
COLUMNS = 3
NOT_ENOUGH = "not enough alone"
MANY = 10_000
HALVINGS = 14
LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class LeverCell:
    """What one lever would have to be for one target."""

    text: str
    holds: bool = False
    dim: bool = False
    more: str = ""
    target: str = ""


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
    answers_of = [found, *[answers.answer(replace(request, target=value)) for value in targets[1:]]]
    gains = {gain.name.removesuffix("_s"): points(gain.ettr_gain) for gain in found.gains}
    rows = [
        _row("Save stall", "at most", request.save_stall_s, answers_of, "save_stall_s", gains.get("save_stall", "")),
        _row("Recovery", "at most", request.recovery_s, answers_of, "recovery_s", gains.get("recovery", "")),
        _row("Time between faults", "at least", found.inputs.mtbf_s, answers_of, "mtbf_s", gains.get("fault_rate", "")),
    ]
    if request.downtime_s and found.inputs.mtbf_s is not None:
        rows.append(_searched("Downtime", request.downtime_s, answers_of, "downtime_s", gains.get("downtime", "")))
    if request.nodes is not None:
        rows.append(_count_row("Nodes", "at most", request.nodes, answers_of, "nodes"))
    if request.repair_s is not None and found.inputs.mtbf_s is not None:
        gain = f"one more: {gains['standbys']}" if "standbys" in gains else ""
        rows.append(_count_row("Standbys", "at least", request.standbys, answers_of, "standbys", gain))
        if request.standbys is not None and request.repair_s:
            rows.append(_searched("Repair time", request.repair_s, answers_of, "repair_s", gains.get("repair", "")))
    rows.append(_together(found, answers_of))
    told = [number(value) for value in targets]
    rows = [replace(row, cells=tuple(map(_for, row.cells, told))) for row in rows]
    note = (
        "Each alone, with the period chosen anew and all else as it is; a tick: it holds already, so this is the room "
        "there is. Together: the least effort if halving the stall costs as much as halving the recovery; your costs "
        "may differ."
    )
    return {"targets": told, "rows": rows, "note": note}


def _for(cell: LeverCell, target: str) -> LeverCell:
    return replace(cell, target=target)


def _not_given(found: Answer) -> LeverCell:
    """What stands where there is no limit: the lever is free where the target is reached anyway."""
    free = found.exact.feasible
    return LeverCell("no limit" if free else NOT_ENOUGH, free, dim=True)


def _row(label: str, bound: str, now_s: float | None, answers_of: list[Answer], name: str, gain: str) -> LeverRow:
    at_least = bound == "at least"
    cells = []
    for each in answers_of:
        limit_s = getattr(each.levers, name)
        if limit_s is None:
            cells.append(_not_given(each))
            continue
        holds = now_s is None or (now_s >= limit_s if at_least else now_s <= limit_s)
        cells.append(LeverCell(spoken(limit_s), holds))
    now = "none" if now_s is None else spoken(now_s)
    return LeverRow(label, bound, now, tuple(cells), gain)


def _searched(label: str, now_s: float, answers_of: list[Answer], name: str, gain: str) -> LeverRow:
    """Return the row of a time that the answer has no limit for: it is searched for, to three digits."""
    cells = []
    for each in answers_of:
        limit_s = _most_s(each.request, name, now_s)
        if limit_s is None:
            cells.append(_not_given(each))
        else:
            cells.append(LeverCell(spoken(limit_s), holds=now_s <= limit_s))
    return LeverRow(label, "at most", spoken(now_s), tuple(cells), gain)


def _most_s(request: Request, name: str, now_s: float) -> float | None:
    """Return the longest time of that name with which the target is reachable; None for none and for no limit."""

    def fits(value_s: float) -> bool:
        try:
            return levering.reachable(replace(request, **{name: value_s}).inputs)  # type: ignore[arg-type]
        except InvalidInput:
            return False

    high_s = now_s
    while fits(high_s):
        high_s *= 4
        if high_s > LONGEST_S:
            return None
    if not fits(0.0):
        return None
    low_s = high_s / 4 if high_s > now_s else 0.0
    if not low_s:
        low_s, high_s = _around(fits, now_s)
    for _ in range(HALVINGS):
        middle_s = (low_s * high_s) ** 0.5
        low_s, high_s = (middle_s, high_s) if fits(middle_s) else (low_s, middle_s)
    return low_s


def _around(fits: Callable[[float], bool], high_s: float) -> tuple[float, float]:
    low_s = high_s / 4
    while not fits(low_s) and low_s > 1e-9:
        low_s, high_s = low_s / 4, low_s
    return low_s, high_s


def _count_row(
    label: str, bound: str, now: int | None, answers_of: list[Answer], name: str, gain: str = ""
) -> LeverRow:
    cells = []
    for each in answers_of:
        limit = getattr(each.levers, name)
        if limit is None:
            many = _with_many(each) if name == "standbys" and not each.exact.feasible else ""
            cells.append(replace(_not_given(each), more=many))
            continue
        holds = now is not None and (now >= limit if bound == "at least" else now <= limit)
        cells.append(LeverCell(grouped(limit), holds))
    return LeverRow(label, bound, "none given" if now is None else grouped(now), tuple(cells), gain)


def _with_many(found: Answer) -> str:
    """Return what so many standbys would give that no lost node ever waits."""
    try:
        best = exact.best(found.request.inputs_at(found.inputs.faults_per_s, standbys=MANY))[1]
    except InvalidInput:
        return ""
    return f"many give {percent(best)}"


def _together(found: Answer, answers_of: list[Answer]) -> LeverRow:
    stall_s, recovery_s = found.request.save_stall_s, found.request.recovery_s
    cells = []
    for each in answers_of:
        pair = each.levers.cheapest
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
    period_s = found.used_s
    laws = what_if.under_laws(found.inputs, period_s) if period_s else ()
    return [(law.name, percent(law.ettr), spoken(law.best_period_s), percent(law.best_ettr)) for law in laws]


def _tiers(found: Answer) -> list[tuple[str, str, str, str]]:
    """Return how often each tier gets a copy, where not every fault needs the last one."""
    period_s, request = found.used_s, found.request
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
