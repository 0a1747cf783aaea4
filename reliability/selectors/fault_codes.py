"""The fault-code table in force: as shipped, with people's changes on top; and the history of those changes."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from threading import local
from typing import Any

from reliability.domain.fault_tables import shipped, usable
from reliability.domain.faults import MATCHER, TABLE, FaultCode, Matcher, Table
from reliability.domain.faults.changing import changed_row
from reliability.models import FaultCodeChange, Node

Mark = tuple[int, datetime, str]
_held = local()

log = logging.getLogger(__name__)


def in_force() -> dict[str, FaultCodeChange]:
    """Return the last change of every code that was ever changed."""
    newest: dict[str, FaultCodeChange] = {}
    for change in FaultCodeChange.objects.order_by("id"):
        newest[change.code] = change
    return newest


def history(code: str) -> list[FaultCodeChange]:
    """Return the changes of a code, newest first."""
    return list(FaultCodeChange.objects.filter(code=code).order_by("-version"))


def last_change() -> int:
    """Return the number of the last change, 0 when the table is as shipped."""
    return FaultCodeChange.objects.order_by("-id").values_list("id", flat=True).first() or 0


def changes_in_force() -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the number of the last change, and code -> values of all that differs from the table as shipped."""
    changes = in_force()
    differing = {code: each.values for code, each in changes.items() if each.kind != FaultCodeChange.Kind.RESET}
    return max((each.pk for each in changes.values()), default=0), differing


def matching_otherwise() -> list[Node]:
    """Return nodes that match lines with another table than the one in force: an older one, or of another version."""
    number = last_change()
    return [
        node
        for node in Node.objects.exclude(last_seen_at=None).order_by("name")
        if node.fault_table
        and (node.fault_table.get("changes"), node.fault_table.get("shipped")) != (number, shipped())
    ]


def _mark() -> Mark | None:
    return FaultCodeChange.objects.order_by("-id").values_list("id", "changed_at", "code").first()


@lru_cache(maxsize=2)
def _matcher(_mark: Mark) -> Matcher:
    return Matcher(_changed(in_force()))


def _changed(changes: Mapping[str, FaultCodeChange]) -> Table:
    """A change that this version of the table cannot take, as one of a code that is gone, changes nothing."""
    there = {code: each for code, each in changes.items() if code in TABLE or each.kind != FaultCodeChange.Kind.RESET}
    good, bad = usable({code: each.values for code, each in there.items()})
    if bad:
        log.error("Changes of the fault table that cannot be used are left out: %s", ", ".join(sorted(bad)))
    return TABLE.changed(changed_row(TABLE, code, values) for code, values in good.items())


def matcher() -> Matcher:
    """Return what finds codes by the table in force. It is made anew only after a change."""
    kept: list[Matcher] | None = getattr(_held, "matcher", None)
    if kept:
        return kept[0]
    mark = _mark()
    found = MATCHER if mark is None else _matcher(mark)
    if kept is not None:
        kept.append(found)
    return found


@contextmanager
def held() -> Iterator[None]:
    """Have this thread see one table within the block, whatever is changed meanwhile: that a piece of work agrees
    with itself, and does not ask a dozen times whether something was changed.
    """
    outer: list[Matcher] | None = getattr(_held, "matcher", None)
    _held.matcher = [] if outer is None else outer
    try:
        yield
    finally:
        _held.matcher = outer


def table() -> Table:
    """Return the table in force."""
    return matcher().table


def families(rows: Table) -> list[str]:
    """Return the sources that the rows come from, in the order of the table."""
    return list(dict.fromkeys(row.source for row in rows.values()))


def searched(
    rows: Table, *, words: str = "", family: str = "", action: str = "", fault_class: str = ""
) -> list[FaultCode]:
    """Return the rows that have all the words in code, meaning or advice, and that are of this family and so on."""
    wanted = words.lower().split()
    return [
        row
        for row in rows.values()
        if (not family or row.source == family)
        and (not action or row.action == action)
        and (not fault_class or row.fault_class == fault_class)
        and all(word in f"{row.code} {row.meaning} {row.advice}".lower() for word in wanted)
    ]


def as_values(row: FaultCode) -> dict[str, Any]:
    """Return a row as the REST interface and the command show it."""
    return {
        "code": row.code,
        "source": row.source,
        "class": str(row.fault_class),
        "severity": str(row.severity),
        "action": str(row.action),
        "meaning": row.meaning,
        "advice": row.advice,
        "origin": str(row.origin),
        "weight": str(row.weight),
        "debounce_s": row.debounce_s,
        "fields": list(row.fields),
        "clears": row.clears,
        "enabled": row.enabled,
        "examples": list(row.examples),
    }
