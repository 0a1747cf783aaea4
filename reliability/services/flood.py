"""A node sends the same finding by the thousand: how does that neither lose a count nor hold up what others send?

A finding that is the same as one that waits to be read is kept as counted with that one: reading it costs nothing, and
sending it again is still known. Of different findings a node may have MOST_WAITING unread; what is more it keeps and
sends later. What is not a finding is always taken.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import F

from reliability.domain.faults import Matcher
from reliability.domain.faults.merging import MERGED_WITHIN_S, sameness
from reliability.domain.faults.words import Value
from reliability.models import Node, Report
from reliability.selectors import fault_codes
from reliability.selectors.fault_context import fields_of

MOST_WAITING = 2000
LATER = "Too many findings of this node wait to be read: keep it and send it again a little later."


class Gathered:
    """Takes the reports of one batch of one node, one after the other. Used inside one transaction."""

    def __init__(self, node: Node, now: datetime) -> None:
        self._node, self._now = node, now
        self._new: dict[str, Report] = {}
        self._added: Counter[str] = Counter()
        self._heirs: dict[str, tuple[Report, dict[str, Any]]] = {}
        self._told: dict[tuple[str, str], Mapping[str, Value]] = {}
        self._last = ""
        self._room: int | None = None

    def take(self, row: Report) -> bool:
        """Return whether a report is taken; one that is the same as another is marked as counted with that one."""
        if row.kind != "finding" or row.state != Report.State.NEW:
            return True
        row.same = sameness(row.job_name, row.epoch, row.body, self._fields(row.body))
        neighbours = row.same == self._last
        if not neighbours and row.body["code"] in self._matcher.table.in_order:
            return self._take_new(row)
        if row.same in self._new:
            self._new[row.same].count += row.count
            _count_with(row, self._new[row.same].seq)
        elif row.same in self._waiting:
            self._added[row.same] += row.count
            self._heirs.setdefault(row.same, (row, row.body))
            _count_with(row, self._waiting[row.same][1])
        else:
            return self._take_new(row)
        return True

    def _take_new(self, row: Report) -> bool:
        if self._room is None:
            waiting = Report.objects.filter(node=self._node, state=Report.State.NEW, kind="finding")
            self._room = MOST_WAITING - waiting.count()
        if self._room <= 0:
            return False
        self._room -= 1
        self._new[row.same], self._last = row, row.same
        return True

    def waits(self) -> bool:
        """Return whether something of before still waits to be read: what came is counted with it, or has no room."""
        return bool(self._added) or (self._room is not None and self._room <= 0)

    def count_up(self) -> None:
        """Write what was counted with reports that wait; where one was read meanwhile, an heir is read instead."""
        for same, count in self._added.items():
            waiting = Report.objects.filter(pk=self._waiting[same][0], state=Report.State.NEW)
            if not waiting.update(count=F("count") + count):
                heir, body = self._heirs[same]
                heir.state, heir.count, heir.body = Report.State.NEW, count, body

    def _fields(self, body: Mapping[str, Any]) -> Mapping[str, Value]:
        if body.get("fields"):
            return dict(body["fields"])
        line = (body["code"], body.get("evidence") or "")
        if line not in self._told:
            self._told[line] = fields_of(*line, self._matcher)
        return self._told[line]

    @cached_property
    def _matcher(self) -> Matcher:
        return fault_codes.matcher()

    @cached_property
    def _waiting(self) -> Mapping[str, tuple[int, int]]:
        """Return number and place of findings that came a moment ago and wait, by what makes them the same."""
        since = self._now - timedelta(seconds=MERGED_WITHIN_S)
        rows = Report.objects.filter(node=self._node, state=Report.State.NEW, kind="finding", received_at__gte=since)
        return {same: (pk, seq) for same, pk, seq in rows.order_by("-id").values_list("same", "pk", "seq")}


def _count_with(row: Report, seq: int) -> None:
    row.state = Report.State.PROCESSED
    row.body = {"code": row.body["code"], "counted_with": seq}
