"""What is each finding worth in its company? Every rule takes the findings and says which of them weigh more or less.

Rules that need no company stand in the table. Those here: a witness counts only beside an end; a condition that ended
counts no more, one that stands explains why training stopped; the same place hit again and again is hardware; the
driver's own word on the recovery raises the code before it; planned maintenance is no fault.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reliability.domain.faults.conditions import FLAPS, flaps, stands, waits_s
from reliability.domain.faults.findings import Context, Finding, Maintenance
from reliability.domain.faults.table import Table
from reliability.domain.faults.words import STRENGTH, Action, FaultClass, FaultCode, Weight

EVENT_GAP_S = 5.0
"""The same code at the same place within this time and attempt is one event, however many lines it has."""
PRINTED_S = 60.0
"""What a rank printed so long before it ended may be why it did."""
_NO_ENDS = ("exit-0",)
_NEEDS_ANOTHER_NODE = ("GPU Reset Required", "Node Reboot Required")


@dataclass(frozen=True)
class Weighed:
    """A finding with its row and what it comes to here. `notes` say why that differs from the row.

    `tabled` is the action that a policy for its class changed, None where none did. `aside`: it was printed by a rank
    that went on, so it is a consequence of nothing, and says nothing of how many nodes have something.
    """

    finding: Finding
    row: FaultCode
    fault_class: FaultClass
    action: Action
    notes: tuple[str, ...] = ()
    pending_s: float = 0.0
    tabled: Action | None = None
    aside: bool = False

    def at(self, action: Action, note: str, *, fault_class: FaultClass | None = None) -> "Weighed":
        """Return it with another action and the sentence that says why."""
        return replace(self, action=action, fault_class=fault_class or self.fault_class, notes=(*self.notes, note))

    def raised(self, action: Action, note: str, *, fault_class: FaultClass | None = None) -> "Weighed":
        """Return it with a stronger action; unchanged when the action is not stronger."""
        return self.at(action, note, fault_class=fault_class) if STRENGTH[action] > STRENGTH[self.action] else self


def is_end(row: FaultCode) -> bool:
    """Return whether a code says that a rank or container ended."""
    return row.code in ("container-died", "oom") or (row.source == "exit-code" and row.code not in _NO_ENDS)


def weigh(
    findings: Sequence[Finding], *, unknown_action: Action, now: float, context: Context, table: Table
) -> list[Weighed]:
    """Return the findings in their order of arrival, each with what it is worth."""
    ordered = sorted(findings, key=lambda each: each.order)
    items = [_alone(each, table) for each in ordered]
    items = _witnesses(items)
    items = _unexplained(items, unknown_action)
    items = [_condition(each, ordered, table, now) for each in items]
    items = [_repeated(each, ordered, context, table) for each in items]
    items = _recovery_told(items)
    return [_planned(each, context) for each in items]


def _alone(finding: Finding, table: Table) -> Weighed:
    row = table.lookup(finding.code)
    action = row.action if row.enabled else Action.OBSERVE
    return Weighed(finding, row, row.fault_class, action)


def _witnesses(items: Sequence[Weighed]) -> list[Weighed]:
    """A witness explains an end on its own node; while nothing ended there it is only noted.

    So does what a rank printed, which explains an end of that rank alone, and that soon after.
    """
    ends = [each.finding for each in items if is_end(each.row) and not each.finding.printed]
    return [_witness(each, ends) for each in items]


def _witness(item: Weighed, ends: Sequence[Finding]) -> Weighed:
    finding = item.finding
    if finding.printed and not any(_explains(finding, end) for end in ends):
        noted = item.at(Action.OBSERVE, "The rank that printed it went on, so it is only noted.")
        return replace(noted, aside=True)
    if item.row.weight is Weight.WITNESS and all(end.node != finding.node for end in ends):
        return item.at(Action.OBSERVE, "No rank ended on this node, so it is only noted.")
    return item


def _explains(printed: Finding, end: Finding) -> bool:
    """Return whether what a rank printed may be why it ended; a container that ended took all its ranks along."""
    soon = abs(end.at - printed.at) <= PRINTED_S
    return soon and end.node == printed.node and end.rank in (printed.rank, None)


def _unexplained(items: Sequence[Weighed], unknown_action: Action) -> list[Weighed]:
    """An end without a cause gets the job's policy, unless its node tells of a cause."""
    explained = {each.finding.node for each in items if not each.row.follow_up and each.action is not Action.OBSERVE}
    return [
        replace(each, action=unknown_action)
        if each.row.unexplained and not each.finding.printed and each.finding.node not in explained
        else each
        for each in items
    ]


def _condition(item: Weighed, findings: Sequence[Finding], table: Table, now: float) -> Weighed:
    """Weigh a condition by whether it stands and for how long."""
    row = item.row
    if item.finding.printed or (not row.debounce_s and row.standing_action is None):
        return item
    if not stands(item.finding, findings, table, now=now):
        return item.at(Action.OBSERVE, "It ended by itself.")
    again = flaps(item.finding, findings, until=now)
    flapping = (
        replace(item, notes=(*item.notes, f"It came {again} times in a short while.")) if again >= FLAPS else item
    )
    left = waits_s(item.finding, row, now=now)
    if item.action is not Action.OBSERVE and left > 0:
        waiting = flapping.at(Action.OBSERVE, f"It may end by itself: awaited for {left:.0f} s more.")
        return replace(waiting, pending_s=left)
    return flapping


def standing(items: Sequence[Weighed], context: Context, table: Table, *, now: float) -> Weighed | None:
    """Return the first condition that stands and that explains why training stopped, at the action for that.

    What was found before, under whatever attempt, stands as well as what is new.
    """
    known = (*context.conditions, *(item.finding for item in items))
    for item in (*(_alone(each, table) for each in context.conditions), *items):
        action = item.row.standing_action if item.row.enabled and not item.finding.printed else None
        if action is None or not stands(item.finding, known, table, now=now):
            continue
        told = _planned(item.raised(action, "Training stopped while this stands."), context)
        if told.action is not Action.OBSERVE:
            return told
    return None


def awaits(row: FaultCode) -> bool:
    """Return whether a code is acted on only when it has stood for a while."""
    return row.enabled and row.debounce_s > 0 and row.action is not Action.OBSERVE


def awaited(findings: Sequence[Finding], table: Table, *, now: float) -> frozenset[int]:
    """Return the orders of the conditions that stand and are not due yet: no other finding decides about them."""
    items = (_alone(each, table) for each in findings if awaits(table.lookup(each.code)))
    return frozenset(each.finding.order for each in items if _condition(each, findings, table, now).pending_s > 0)


def _places(finding: Finding, place: str) -> tuple[object, ...] | None:
    """Return what must be the same for a repeat, None when the finding does not tell."""
    names = {"unit": ("device", "gpc", "tpc"), "device": ("device",), "node": ()}[place]
    told = tuple(finding.fields.get(name) for name in names)
    return None if None in told else (finding.node, *told)


def events(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each event: lines of one attempt within EVENT_GAP_S belong to the same one."""
    distinct: list[Finding] = []
    for each in sorted(findings, key=lambda finding: (finding.at, finding.order)):
        last = distinct[-1] if distinct else None
        same = last is not None and (last.job, last.epoch) == (each.job, each.epoch)
        if last is None or not same or each.at - last.at > EVENT_GAP_S:
            distinct.append(each)
    return distinct


def _at_same_place(item: Weighed, seen: Sequence[Finding], place: str) -> list[Finding]:
    here = _places(item.finding, place)
    if here is None:
        return []
    return events(each for each in seen if _places(each, place) == here)


def _repeated(item: Weighed, findings: Sequence[Finding], context: Context, table: Table) -> Weighed:
    """The same code at the same place so many times, or on one GPU under several jobs, is the place's own fault."""
    rule = item.row.repeat
    if rule is None or item.finding.printed:
        return item
    known = {each.order: each for each in (*context.history, *findings)}.values()
    since = item.finding.at - rule.window_s
    same = [each for each in known if each.code == item.row.code and not each.printed]
    seen = [each for each in same if since <= each.at <= item.finding.at]
    hits, where = _at_same_place(item, seen, rule.place), rule.place
    if len(hits) < rule.times and rule.place == "unit":
        hits, where = _at_same_place(item, seen, "device"), "device"
        if len({each.job for each in hits}) < 2:
            return item
    if len(hits) < rule.times:
        return item
    hours = rule.window_s / 3600
    jobs = sorted({each.job for each in hits if each.job})
    under = f" under the jobs {', '.join(jobs)}" if len(jobs) > 1 else ""
    told = " ".join(
        f"{name} {item.finding.fields[name]}" for name in ("device", "gpc", "tpc") if name in item.finding.fields
    )
    note = (
        f"{len(hits)} times within {hours:.0f} h on the same {where} ({told or item.finding.node}){under}: "
        "suspected itself."
    )
    if rule.moves_once and context.suspects_replaced:
        names = ", ".join(sorted(context.suspects_replaced))
        told = f"{names} was replaced for the like within the day and it came again: likely the program's own doing."
        return item.at(Action.HOLD, f"{note} {told}", fault_class=rule.fault_class)
    return item.raised(rule.action, note, fault_class=rule.fault_class)


def _recovery_told(items: Sequence[Weighed]) -> list[Weighed]:
    """The driver says which recovery a GPU needs (xid-154): that raises the code before it on the same GPU."""
    result = list(items)
    for place, note in enumerate(items):
        wanted = note.finding.fields.get("recovery")
        if note.row.code != "xid-154" or wanted not in _NEEDS_ANOTHER_NODE:
            continue
        before = [index for index in range(place) if _led_to(result[index], note)]
        if before:
            last = before[-1]
            result[last] = result[last].raised(
                Action.FAILOVER, f"The driver says: {wanted}.", fault_class=FaultClass.HARDWARE
            )
    return result


def _led_to(item: Weighed, note: Weighed) -> bool:
    same = item.finding.node == note.finding.node
    return (
        same
        and item.row.source == "nvidia-xid"
        and item.row.code != "xid-154"
        and not item.row.follow_up
        and (item.finding.fields.get("device") in (None, note.finding.fields.get("device")))
    )


QUIET_CODES = ("node-lost", "agent-silent")
"""What a planned silence explains."""


def _planned(item: Weighed, context: Context) -> Weighed:
    """Weigh what planned times excuse. Ranks that ended are started again all the same: no plan leaves a job dead."""
    for window in context.maintenance:
        if window.covers(item.finding):
            item = _excused(item, window)
    return item


def _excused(item: Weighed, window: Maintenance) -> Weighed:
    planned = f"In planned maintenance{f' ({window.reason})' if window.reason else ''}"
    silence = item.row.code in QUIET_CODES and (window.quiet or window.stay)
    if silence or (window.observe and not is_end(item.row)):
        return (
            item if item.action is Action.OBSERVE and item.notes else item.at(Action.OBSERVE, f"{planned}: no fault.")
        )
    if item.action is Action.FAILOVER and (window.stay or window.observe):
        return item.at(Action.RESTART_IN_PLACE, f"{planned}: the job stays on its node.")
    return item
