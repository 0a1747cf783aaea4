"""What do nodes tell of their standing checks, without one write for each heartbeat?

A check is written when its value changes, and otherwise only when what is kept would show it much older than it is.
What was written last is remembered in this process, so that most heartbeats need no query.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from reliability.domain.standing_checks import CheckBeat
from reliability.models import Node, NodeCheck
from reliability.services import dispatch, node_events

REFRESH_S = 10.0
REFRESH_SHARE = 0.25
"""An unchanged check is written again after REFRESH_S, or this share of its limit where that is longer."""


@dataclass(frozen=True)
class Told:
    """The checks of a node and when the server heard of them. Checks are None from an agent that has none."""

    at: datetime
    checks: Mapping[str, CheckBeat] | None


@dataclass(frozen=True)
class _Written:
    ok: bool | None
    limit_s: float
    checked_at: datetime | None


class Memory:
    """What was written last of each node; what another process wrote meanwhile is found at the next writing."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[str, datetime], dict[str, _Written]]] = {}

    def of(self, node: Node) -> dict[str, _Written] | None:
        """Return what was written of this life of the node; None when nothing is remembered."""
        life, known = self._known.get(node.pk, (None, None))
        return known if life == (node.incarnation, node.registered_at) else None

    def keep(self, node: Node, rows: Iterable[NodeCheck]) -> None:
        """Remember what the database holds of the node now."""
        written = {row.name: _Written(row.ok, row.limit_s, row.checked_at) for row in rows}
        self._known[node.pk] = ((node.incarnation, node.registered_at), written)


memory = Memory()


def write(told: Mapping[str, Told], nodes: Iterable[Node]) -> None:
    """Write what changed of the checks of these nodes, `told` by name."""
    due = [node for node in nodes if _is_due(memory.of(node), told[node.name])]
    if due:
        with transaction.atomic():
            _write(told, due)


def _write(told: Mapping[str, Told], due: Sequence[Node]) -> None:
    rows: dict[int, dict[str, NodeCheck]] = {node.pk: {} for node in due}
    for row in NodeCheck.objects.filter(node__in=list(rows)):
        rows[row.node_id][row.name] = row
    older: list[NodeCheck] = []
    for node in due:
        older += _write_node(node, told[node.name], rows[node.pk])
    _refresh(older)


def forget(node: Node) -> None:
    """What an earlier life of the agent told says nothing any more."""
    NodeCheck.objects.filter(node=node).delete()


def _is_due(written: Mapping[str, _Written] | None, told: Told) -> bool:
    if told.checks is None:
        return False
    if written is None or written.keys() != told.checks.keys():
        return True
    return any(_differs(written[name], check, told.at) for name, check in told.checks.items())


def _checked_at(check: CheckBeat, at: datetime) -> datetime | None:
    return None if check.age_s is None else at - timedelta(seconds=check.age_s)


def _differs(written: _Written, check: CheckBeat, at: datetime) -> bool:
    """Return whether what is kept of a check is another value, or would look much older than it is."""
    checked_at = _checked_at(check, at)
    if written.ok is not check.ok or written.limit_s != check.limit_s:
        return True
    if checked_at is None or written.checked_at is None:
        return checked_at is not written.checked_at
    newer_s = (checked_at - written.checked_at).total_seconds()
    return newer_s >= max(REFRESH_S, REFRESH_SHARE * check.limit_s)


def _write_node(node: Node, told: Told, rows: dict[str, NodeCheck]) -> list[NodeCheck]:
    """Write what changed of one node, and return the rows of which only the age did."""
    checks = told.checks or {}
    gone = [row.pk for name, row in rows.items() if name not in checks]
    if gone:
        NodeCheck.objects.filter(pk__in=gone).delete()
    kept, older, changed = [], [], bool(gone)
    for name, check in sorted(checks.items()):
        row = rows.get(name)
        if row is None:
            row, changed = _new(node, name, check, told.at), True
        elif row.ok is not check.ok:
            _change(node, row, check, told.at)
            changed = True
        elif _differs(_Written(row.ok, row.limit_s, row.checked_at), check, told.at):
            _fill(row, check, told.at)
            older.append(row)
        kept.append(row)
    memory.keep(node, kept)
    if changed:
        dispatch.changed(f"node:{node.pk}")
    return older


def _new(node: Node, name: str, check: CheckBeat, at: datetime) -> NodeCheck:
    """Keep a check that was not known. One without a result yet is awaited for its own limit before that counts."""
    began = _checked_at(check, at) or at
    since = began if check.ok is not None else began + timedelta(seconds=check.limit_s)
    row = NodeCheck(node=node, name=name, ok=check.ok, since=since)
    _fill(row, check, at)
    row.save(force_insert=True)
    return row


def _change(node: Node, row: NodeCheck, check: CheckBeat, at: datetime) -> None:
    """Write that a check has another value now."""
    word = {True: "passes", False: "fails", None: "gives no result"}[check.ok]
    told = f": {check.reason}" if check.reason and not check.ok else "."
    first = row.ok is None and row.since > at and check.ok
    if not first:  # a first result that is good is what was awaited
        text = f"Check {row.name} {word}{told}"
        node_events.check_changed(node, text, at=at, worse=row.ok is True, check=row.name, ok=check.ok)
    row.ok, row.since = check.ok, at
    _fill(row, check, at)
    row.save(force_update=True)


def _refresh(rows: Iterable[NodeCheck]) -> None:
    """Write age, words and figures of checks whose value is the same: one statement with many parameter sets."""
    time, as_json = connection.ops.adapt_datetimefield_value, connection.ops.adapt_json_value
    values = [
        (row.reason, as_json(row.measured, None), row.limit_s, time(row.checked_at), time(row.stale_at), row.pk)
        for row in rows
    ]
    if values:
        table = NodeCheck._meta.db_table
        with connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE {table} SET reason = %s, measured = %s, limit_s = %s, checked_at = %s, stale_at = %s"  # noqa: S608 (no value in it)
                " WHERE id = %s",
                values,
            )


def _fill(row: NodeCheck, check: CheckBeat, at: datetime) -> None:
    row.reason, row.measured, row.limit_s = check.reason, dict(check.measured), check.limit_s
    row.checked_at = _checked_at(check, at)
    row.stale_at = None if row.checked_at is None else row.checked_at + timedelta(seconds=check.limit_s)
