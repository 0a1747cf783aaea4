"""Which conditions stand: reported, not ended again, and standing for long enough to count?

A link that went down and came back is well, unless it does so again and again: then it flaps, and counts as down until
it was stable for STABLE_S.
"""

from collections.abc import Sequence

from reliability.domain.faults.findings import Finding
from reliability.domain.faults.places import can_be_one
from reliability.domain.faults.table import Table
from reliability.domain.faults.words import FaultCode

FLAPS = 3
"""So many times down within FLAP_WINDOW_S is flapping."""
FLAP_WINDOW_S = 600.0
STABLE_S = 300.0


def same_place(one: Finding, other: Finding) -> bool:
    """Return whether two findings can speak of the same thing: same node, and nothing that tells two places apart."""
    return one.node == other.node and can_be_one(one.fields, other.fields)


def flaps(condition: Finding, findings: Sequence[Finding], *, until: float) -> int:
    """Return how often a condition was reported within FLAP_WINDOW_S before `until`, each line counted."""
    seen = (each for each in findings if each.code == condition.code and same_place(each, condition))
    return sum(each.count for each in seen if until - FLAP_WINDOW_S <= each.at <= until)


def cleared_by(condition: Finding, findings: Sequence[Finding], table: Table) -> Finding | None:
    """Return the later finding that ended a condition, None while it stands."""
    for each in findings:
        ends = table.lookup(each.code).clears == condition.code
        if ends and each.order > condition.order and same_place(each, condition):
            return each
    return None


def stands(condition: Finding, findings: Sequence[Finding], table: Table, *, now: float) -> bool:
    """Return whether a condition stands at `now`: not ended, or flapping and not yet stable."""
    end = cleared_by(condition, findings, table)
    if end is None:
        return True
    return flaps(condition, findings, until=end.at) >= FLAPS and now - end.at < STABLE_S


def waits_s(condition: Finding, row: FaultCode, *, now: float) -> float:
    """Return how much longer a condition must stand before its action is taken, 0 when it is due."""
    return max(0.0, condition.at + row.debounce_s - now)
