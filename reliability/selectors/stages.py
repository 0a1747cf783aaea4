"""Where did the time of a recovery go: state by state, and in the planner's two sums?

The one definition of these times; pages, REST, the command and the planner all read it here. The stages that drills
keep (core.stage_times) are the same times, summed to the end of each stage.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from reliability.domain import goodput
from reliability.domain.failover import OPEN, Kind, State
from reliability.domain.policy import Approval
from reliability.models import Failover, FailoverEvent

DETECTION = "detection"
EXPOSED = (State.RESTORING, State.STARTING, State.VERIFYING)
"""States in which another fault would strike: the planner's recovery. All others are its downtime."""


class Entered(NamedTuple):
    """When a state was entered, and from which; `source` is empty for the proposal itself."""

    at: datetime
    source: str
    target: str


Events = Sequence[Entered] | Sequence[FailoverEvent]


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one recovery. `person_s`, the wait for a person, is part of the downtime where one is asked."""

    recovery_s: float
    downtime_s: float
    person_s: float


def by_state(failover: Failover, events: Events, *, now: datetime | None = None) -> list[tuple[str, float]]:
    """Return the stages of a recovery with their seconds, from the first sign of the fault on.

    With `now` the present stage of one that is not over is listed too, until then.
    """
    marks = [(failover.fault_at.timestamp(), DETECTION)]
    if not events or events[0].source:
        marks.append((failover.created_at.timestamp(), State.AWAITING_APPROVAL.value))
    marks += [(event.at.timestamp(), event.target) for event in events]
    if now is not None and failover.state in OPEN:
        marks.append((now.timestamp(), "now"))
    return goodput.stage_times(marks)


def spent(chain: Sequence[Failover], events: Mapping[int, Events], *, approval: str) -> Spent:
    """Return what a recovery took, with those it took the place of; the last of `chain` is the one that completed.

    What requests to move a node waited for a decision counts as downtime only where the job's approval is manual:
    elsewhere nobody will be asked at the next fault. A restart in place asks nobody.
    """
    last = chain[-1]
    own = goodput.totals(by_state(last, events.get(last.pk, ())))
    recovery = sum(own.get(state.value, 0.0) for state in EXPOSED)
    person = sum(
        goodput.totals(by_state(each, events.get(each.pk, ()))).get(State.AWAITING_APPROVAL.value, 0.0)
        for each in chain
        if each.kind == Kind.FAILOVER
    )
    # from the first sign on: a request that took another's place counts the time of that one as its detection
    downtime = sum(own.values()) - recovery - (0.0 if approval == Approval.MANUAL else person)
    return Spent(recovery, max(0.0, downtime), person)


def chains(failovers: Iterable[Failover]) -> dict[int, list[Failover]]:
    """Return for each recovery those it took the place of, the oldest first, and itself last."""
    rows = list(failovers)
    before: dict[int, Failover] = {row.superseded_by_id: row for row in rows if row.superseded_by_id is not None}
    found = {}
    for row in rows:
        chain = [row]
        while (earlier := before.get(chain[0].pk)) is not None and earlier not in chain:
            chain.insert(0, earlier)
        found[row.pk] = chain
    return found
