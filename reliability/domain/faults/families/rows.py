"""How the rows of a family are written down: short forms that make whole rows."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reliability.domain.faults.words import Action, FaultClass, FaultCode, Line, Origin, Repeat, Severity, Weight

HARDWARE, SOFTWARE, APPLICATION, NETWORK, STORAGE, THERMAL, UNKNOWN = FaultClass
OBSERVE, HOLD, RESTART, FAILOVER = Action
INFO, WARNING, ERROR, FATAL = Severity
FOLLOW_UP, UNEXPLAINED, WITNESS = Weight.FOLLOW_UP, Weight.UNEXPLAINED, Weight.WITNESS
VICTIM = (UNKNOWN, OBSERVE, WARNING)
"""What a rank says that suffers from a fault elsewhere."""
BUG = (APPLICATION, RESTART, ERROR)
SOFT = (SOFTWARE, RESTART, ERROR)
AT_THE_PEER = "Look at the rank at the other end."
AT_THE_ODD_ONE = "Look for the rank that did not report, or stayed behind."
DAY_S = 86_400.0
_RANGE = re.compile(r"(\d+)\.\.(\d+)")

SAME_GPU_AGAIN = Repeat(times=2, window_s=DAY_S, place="device", fault_class=HARDWARE, action=FAILOVER)
SAME_GPU_OFTEN = Repeat(times=3, window_s=DAY_S, place="device", fault_class=HARDWARE, action=FAILOVER)
SAME_UNIT_OFTEN = Repeat(times=3, window_s=DAY_S, place="unit", fault_class=HARDWARE, action=FAILOVER)
SAME_NODE_AGAIN = Repeat(times=2, window_s=DAY_S, place="node", fault_class=HARDWARE, action=FAILOVER)


def row(
    code: str,
    fault_class: FaultClass,
    action: Action,
    severity: Severity,
    meaning: str,
    advice: str,
    *more: Any,
    **others: Any,
) -> FaultCode:
    """Return a row; `more` are its lines (Line) and examples (str). `family` adds source and origin."""
    return FaultCode(
        code=code,
        source="",
        fault_class=fault_class,
        action=action,
        severity=severity,
        meaning=meaning,
        advice=advice,
        lines=tuple(each for each in more if isinstance(each, Line)),
        examples=tuple(each for each in more if isinstance(each, str)),
        **others,
    )


def line(pattern: str, *literals: str) -> Line:
    """Return how a line looks; one of `literals` is in each such line."""
    return Line(pattern=pattern, literals=literals)


def family(source: str, origin: Origin, *rows: FaultCode) -> tuple[FaultCode, ...]:
    """Return rows that have one source and are written by the same part of a system."""
    return tuple(replace(each, source=source, origin=origin) for each in rows)


def numbers(listed: str) -> list[int]:
    """Return the numbers of a list such as '8 39..41'."""
    single: list[int] = []
    for part in listed.split():
        ranged = _RANGE.fullmatch(part)
        single += range(int(ranged[1]), int(ranged[2]) + 1) if ranged else [int(part)]
    return single


def numbered(prefix: str, listed: str, *told: Any, **others: Any) -> Iterable[FaultCode]:
    """Yield one row for every number of the list: 'xid', '39..41' gives xid-39, xid-40 and xid-41."""
    for number in numbers(listed):
        yield row(f"{prefix}-{number}", *told, **others)
