"""By which fault-code table are lines of this node judged? By the one the server holds, kept on disk over restarts.

It comes sealed with the answer to a heartbeat, when the number that the heartbeat told was another. From then on a code
that was switched off stands for no line here, and the line of one that was added is found. What cannot be used is told
once, and lines go on to be judged by the table that the agent was shipped with.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.domain import fault_tables
from reliability.domain.fault_tables import Changes, SentTable
from reliability.errors import OrderRefused, ReliabilityError
from reliability.tiers import opening

FILE = "fault_table.json"
UNREAD = "fault-table-unread"
_NAMED = 10

log = logging.getLogger("stepkeeper.agent")


class TableBook:
    """The table of one node. `use` is called with the changes in force, at the start and whenever they differ."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        key: Callable[[], str],
        use: Callable[[Changes], None],
        report: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._path = folder / FILE
        self._node = node
        self._key = key
        self._use = use
        self._report = report
        self._lock = threading.Lock()
        self._held = SentTable(changes_to=0, issued_at=0.0, changes={})
        self._refused = 0

    def load(self) -> None:
        """Take up the table that was kept; without one, or with one that cannot be read, the one as shipped."""
        try:
            kept = fault_tables.sent_table(fault_tables.read_sent(opening.small(self._path, _longest()).decode()))
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, ReliabilityError) as error:
            self._tell(f"The table that was kept cannot be read ({error}). Lines are judged by the table as shipped.")
            return
        self._begin(kept)

    def told(self) -> dict[str, Any]:
        """Return what a heartbeat says of the table."""
        return {"shipped": fault_tables.shipped(), "changes": self._held.changes_to, "refused": self._refused}

    def take(self, envelope: object) -> None:
        """Take the table that came with an answer, if it is genuine and newer than the one that is held."""
        if not isinstance(envelope, Mapping):
            return
        try:
            sent = fault_tables.unseal_table(envelope, node=self._node, key=self._key())
        except OrderRefused as error:
            log.warning("fault-code table refused: node=%s reason=%s", self._node, error.message)
            return
        except ReliabilityError as error:
            self._refuse(_number(envelope), f"The table that was sent cannot be used ({error.message}).")
            return
        with self._lock:
            if sent.issued_at <= self._held.issued_at or sent.changes_to == self._held.changes_to:
                return
            self._keep(sent)
            self._begin(sent)
        log.info("fault-code table taken: node=%s changes=%s codes=%s", self._node, sent.changes_to, len(sent.changes))

    def _begin(self, sent: SentTable) -> None:
        good, bad = fault_tables.usable(sent.changes)
        self._held, self._refused = sent, 0
        self._use(good)
        if bad:
            named = ", ".join(sorted(bad)[:_NAMED])
            self._tell(
                f"Changes of {len(bad)} codes do not fit this version of the agent ({named}): they are left out."
            )

    def _keep(self, sent: SentTable) -> None:
        told = {"changes_to": sent.changes_to, "issued_at": sent.issued_at, "changes": sent.changes}
        try:
            opening.replace(self._path, json.dumps(told).encode(), mode=0o600)
        except OSError as error:
            log.error("fault-code table not kept on disk: node=%s reason=%s", self._node, error)

    def _refuse(self, number: int, why: str) -> None:
        if number != self._refused:
            self._refused = number
            self._tell(f"{why} Lines are judged by the one before.")

    def _tell(self, evidence: str) -> None:
        log.error("fault-code table: node=%s %s", self._node, evidence)
        self._report("finding", {"code": UNREAD, "rank": None, "evidence": evidence, "count": 1})


def _longest() -> int:
    return 2 * fault_tables.MOST_BYTES


def _number(envelope: Mapping[str, Any]) -> int:
    """Return the number that a genuine table claims which cannot be used, so that it is not sent again and again."""
    try:
        number = fault_tables.read_sent(str(envelope.get("table"))).get("changes_to")
    except ReliabilityError:
        return -1
    return number if isinstance(number, int) else -1
