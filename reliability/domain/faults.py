"""What do findings mean: which class of fault, which action, which of them is the root (M9)?

The earliest finding that is no follow-up is the root. A stronger action takes its place, so that a plain program error
on a survivor cannot hide a lost node. Later findings only ever raise the action.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from reliability.domain import fault_table
from reliability.domain.fault_lines import code_for_exit, match_line

__all__ = [
    "STRENGTH",
    "TABLE",
    "Action",
    "FaultClass",
    "FaultCode",
    "Finding",
    "Judgement",
    "Severity",
    "code_for_exit",
    "judge",
    "lookup",
    "match_line",
]

BLAST_WINDOW_S = 60.0
"""The same hardware code on most nodes within this time points to something they share."""


class FaultClass(StrEnum):
    """Class of a fault."""

    HARDWARE = "hardware"
    SOFTWARE = "software"
    APPLICATION = "application"
    NETWORK = "network"
    STORAGE = "storage"
    THERMAL = "thermal"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What is to be done, mildest first."""

    OBSERVE = "observe"
    HOLD = "hold"
    RESTART_IN_PLACE = "restart_in_place"
    FAILOVER = "failover"


class Severity(StrEnum):
    """How bad a finding is by itself, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


@dataclass(frozen=True, kw_only=True)
class FaultCode:
    """One row of the fault-code table.

    A follow-up code never decides alone. An unexplained one is an end without a known cause: the job's policy says
    what to do, unless the same node gave a better explanation.
    """

    code: str
    meaning: str
    fault_class: FaultClass
    action: Action
    severity: Severity
    advice: str
    follow_up: bool = False
    unexplained: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation. `at` is the server's receive time, seconds; `order` is the order of arrival."""

    code: str
    node: str
    at: float
    order: int
    rank: int | None = None
    epoch: int | None = None
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a set of findings comes to. `undecided` means: wait, only follow-up codes are known so far."""

    fault_class: FaultClass
    action: Action
    root: Finding | None
    reasons: tuple[str, ...]
    undecided: bool = False


STRENGTH: Mapping[Action, int] = MappingProxyType({action: place for place, action in enumerate(Action)})
"""Actions by strength: a judgement only ever moves up."""

_WEIGHTS = ("", "follow_up", "unexplained")


def _from_row(row: fault_table.Row) -> FaultCode:
    if row.weight not in _WEIGHTS:
        raise ValueError(f"fault code {row.code}: weight is one of {_WEIGHTS}, not {row.weight!r}")
    return FaultCode(
        code=row.code,
        meaning=row.meaning,
        fault_class=FaultClass(row.fault_class),
        action=Action(row.action),
        severity=Severity(row.severity),
        advice=row.advice,
        follow_up=row.weight == "follow_up",
        unexplained=row.weight == "unexplained",
    )


def _build() -> dict[str, FaultCode]:
    table: dict[str, FaultCode] = {}
    for row in fault_table.rows():
        if row.code in table:
            raise ValueError(f"fault code {row.code} has two rows")
        table[row.code] = _from_row(row)
    return table


TABLE: Mapping[str, FaultCode] = MappingProxyType(_build())
"""Every known fault code."""


def lookup(code: str) -> FaultCode:
    """Return the row of a code. A code the table does not know is harmless: class unknown, only observed."""
    known = TABLE.get(code)
    if known is not None:
        return known
    return FaultCode(
        code=code,
        meaning="A code the fault table does not know.",
        fault_class=FaultClass.UNKNOWN,
        action=Action.OBSERVE,
        severity=Severity.WARNING,
        advice="Nothing is done because of it; look it up and tell us.",
    )


@dataclass(frozen=True)
class _Weighed:
    """A finding with its row and the action it comes to for this job."""

    finding: Finding
    row: FaultCode
    action: Action


def _explained_nodes(findings: Iterable[Finding]) -> set[str]:
    """Nodes on which a known cause was seen: an end without a cause there has one after all."""
    rows = ((finding.node, lookup(finding.code)) for finding in findings)
    return {node for node, row in rows if not row.follow_up and row.action is not Action.OBSERVE}


def _weigh(findings: Sequence[Finding], unknown_action: Action) -> list[_Weighed]:
    explained = _explained_nodes(findings)
    weighed = []
    for finding in sorted(findings, key=lambda each: each.order):
        row = lookup(finding.code)
        open_end = row.unexplained and finding.node not in explained
        weighed.append(_Weighed(finding, row, unknown_action if open_end else row.action))
    return weighed


def _told(item: _Weighed) -> str:
    rank = "" if item.finding.rank is None else f", rank {item.finding.rank}"
    evidence = f" Evidence: {item.finding.evidence}" if item.finding.evidence else ""
    return f"{item.finding.code} on {item.finding.node}{rank}: {item.row.meaning}{evidence}"


def _blast_radius(weighed: Sequence[_Weighed], nodes: int | None) -> tuple[str, ...]:
    """Say which hardware codes hit most nodes within the window: one shared cause is likelier than many."""
    total = nodes or len({item.finding.node for item in weighed})
    sentences = []
    for code in dict.fromkeys(item.row.code for item in weighed if item.row.fault_class is FaultClass.HARDWARE):
        seen = [item.finding for item in weighed if item.row.code == code]
        first = min(finding.at for finding in seen)
        hit = {finding.node for finding in seen if finding.at - first <= BLAST_WINDOW_S}
        if len(hit) > 1 and 2 * len(hit) > total:
            sentences.append(
                f"{code} was seen on {len(hit)} of {total} nodes within {BLAST_WINDOW_S:.0f} s: look for something "
                "they share (power, switch, driver, the job itself) before blaming each node."
            )
    return tuple(sentences)


FOLLOW_UPS = "findings on other ranks are consequences and decide"


def _decided(weighed: Sequence[_Weighed], root: _Weighed, unknown_action: Action, nodes: int | None) -> Judgement:
    reasons = [_told(root)]
    earliest = next(item for item in weighed if not item.row.follow_up and item.action is not Action.OBSERVE)
    if earliest is not root:
        reasons.append(f"It outranks what was seen first ({earliest.finding.code} on {earliest.finding.node}).")
    if root.row.unexplained:
        reasons.append(f"The cause is unknown: the job's policy for that is {unknown_action.replace('_', ' ')}.")
    follow_ups = sum(item.row.follow_up for item in weighed)
    if follow_ups:
        told = "finding on another rank is a consequence and decides" if follow_ups == 1 else FOLLOW_UPS
        reasons.append(f"{follow_ups} {told} nothing.")
    reasons.append(root.row.advice)
    reasons += _blast_radius(weighed, nodes)
    return Judgement(fault_class=root.row.fault_class, action=root.action, root=root.finding, reasons=tuple(reasons))


def _only_follow_ups(weighed: Sequence[_Weighed], now: float, settle_s: float) -> Judgement:
    """Consequences without a cause: wait for one, then restart, because nothing accuses a node."""
    waited = now - min(item.finding.at for item in weighed if item.row.follow_up)
    told = tuple(_told(item) for item in weighed)
    if waited <= settle_s:
        waiting = f"Only consequences are known so far: the cause is awaited for {settle_s - waited:.1f} s more."
        return Judgement(
            fault_class=FaultClass.UNKNOWN, action=Action.OBSERVE, root=None, reasons=(waiting, *told), undecided=True
        )
    unfound = f"No root was found within {settle_s:.1f} s, only consequences: nothing accuses a node."
    return Judgement(
        fault_class=FaultClass.SOFTWARE, action=Action.RESTART_IN_PLACE, root=None, reasons=(unfound, *told)
    )


def judge(
    findings: Sequence[Finding],
    *,
    unknown_action: Action,
    now: float,
    settle_s: float,
    nodes: int | None = None,
) -> Judgement | None:
    """Return what the findings of one job in one epoch (or of one node) come to; None when there are none.

    Root: the earliest arrival among the findings with the strongest action that are no follow-ups. `unknown_action` is
    the job's policy for an end nobody can explain. Only follow-ups: undecided for `settle_s` seconds after the first,
    then a restart in place. `nodes` is the number of nodes of the job, for the blast radius; without it the nodes
    that were named count.
    """
    if not findings:
        return None
    weighed = _weigh(findings, unknown_action)
    decisive = [item for item in weighed if not item.row.follow_up and item.action is not Action.OBSERVE]
    if decisive:
        root = max(decisive, key=lambda item: STRENGTH[item.action])
        return _decided(weighed, root, unknown_action, nodes)
    if any(item.row.follow_up for item in weighed):
        return _only_follow_ups(weighed, now, settle_s)
    first = weighed[0]
    reasons = (_told(first), first.row.advice, *_blast_radius(weighed, nodes))
    return Judgement(fault_class=first.row.fault_class, action=Action.OBSERVE, root=first.finding, reasons=reasons)
