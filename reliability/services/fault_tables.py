"""Which node must be sent the fault-code table, because it matches lines with another one?

Asked with every heartbeat, so the number of the last change is looked up at most once in FRESH_S in each process.
"""

import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reliability.domain.fault_tables import SentTable, seal_table
from reliability.models import Node
from reliability.selectors import fault_codes
from reliability.services import orders

FRESH_S = 1.0


class _Current:
    """The number of the last change, as it was a moment ago, and the changes once they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._until = 0.0
        self._changes: tuple[int, dict[str, Any]] = (0, {})

    def number(self) -> int:
        """Return the number of the last change, 0 when the table is as shipped."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._number = fault_codes.last_change()
                self._until = time.monotonic() + FRESH_S
            return self._number

    def changes(self) -> tuple[int, dict[str, Any]]:
        """Return the changes in force, with the number of the last one."""
        with self._lock:
            if self._changes[0] != self._number:
                self._changes = fault_codes.changes_in_force()
            return self._changes

    def forget(self) -> None:
        """Look again at the next call."""
        with self._lock:
            self._until, self._changes = 0.0, (0, {})


current = _Current()


def for_node(node: Node, told: Mapping[str, Any] | None, now: datetime) -> dict[str, str] | None:
    """Return the sealed table that a node needs, None when it has it, cannot use it, or says nothing of tables."""
    if told is None or current.number() in (told.get("changes"), told.get("refused")):
        return None
    number, changes = current.changes()
    sent = SentTable(changes_to=number, issued_at=now.timestamp(), changes=changes)
    return seal_table(sent, node=node.name, key=orders.order_key(node))
