"""Which findings that wait in the spool may still count up, instead of waiting beside others that say the same?

Only what was never sent: a report that is under way may be with the server already, with the count it had.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reliability.domain.faults import TABLE
from reliability.domain.faults.merging import MERGED_WITHIN_S, sameness

MOST_KNOWN = 4096


@dataclass(kw_only=True)
class Waiting:
    """A finding that waits. `at` is the node's clock at its first, `body` what is stored of it."""

    id: int
    seq: int
    at: float
    body: dict[str, Any]


class Unsent:
    """The findings that wait and were never sent, by what makes them the same. Not for several threads."""

    def __init__(self) -> None:
        self._known: dict[str, Waiting] = {}
        self._last = ""

    def counted(self, kind: str, body: Mapping[str, Any], *, at: float, job: str, epoch: int) -> Waiting | None:
        """Return the waiting finding with this one counted in its body, None when this one waits for itself."""
        if kind != "finding":
            self._last = ""
            return None
        same = sameness(job, epoch, body, body.get("fields") or {})
        neighbours, self._last = same == self._last, same
        known = self._known.get(same)
        if known is None or not 0 <= at - known.at <= MERGED_WITHIN_S:
            return None
        if body.get("code") in TABLE.in_order and not neighbours:
            return None
        known.body["count"] = int(known.body.get("count") or 1) + int(body.get("count") or 1)
        return known

    def wait(self, id_: int, seq: int, body: Mapping[str, Any], *, at: float) -> None:
        """Take note of the finding that was asked for last, which now waits."""
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[self._last] = Waiting(id=id_, seq=seq, at=at, body=dict(body))

    def sent(self, ids: set[int]) -> None:
        """Forget what is about to be sent, or is gone."""
        self._known = {same: known for same, known in self._known.items() if known.id not in ids}
