"""FENCING and FENCE_UNCONFIRMED: does any rank of the old attempt still run, and can it still write?

A node is fenced when it said that it stopped, or when it has been silent for longer than its lease. Whether its ranks
ended with the lease depends on the job's lease rule, and only what is sure is recorded; whatever a node still writes is
refused by its epoch. Silence counts only while ingest listened.
"""

from dataclasses import dataclass, field
from datetime import datetime

from reliability import conf
from reliability.domain.failover import Event
from reliability.domain.policy import LeaseRule
from reliability.models import Failover, Job, Node, OrderRecord
from reliability.selectors import core
from reliability.services import launch, orders
from reliability.services.failovers.moves import Outcome

LEASE_MARGIN_S = 1.0
"""A heartbeat may have been received, and renewed the lease, shortly before it was written down."""


@dataclass
class _Fences:
    """How each node stands."""

    how: dict[str, str] = field(default_factory=dict)
    by_lease: bool = False
    refused: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not (self.refused or self.silent or self.unanswered)

    @property
    def open(self) -> list[str]:
        return sorted([*self.refused, *self.silent, *self.unanswered])


def fencing(failover: Failover, now: datetime) -> Outcome | None:
    """Stop the old attempt everywhere."""
    fences = _look(failover, now)
    if fences.complete:
        return Outcome(Event.FENCED, {"nodes": fences.how})
    waited = (now - failover.state_since).total_seconds()
    if fences.refused or waited >= conf.cluster_policy().fence_limit_s:
        return Outcome(Event.FENCE_TIMED_OUT, {"nodes": fences.how, "unconfirmed": fences.open})
    return None


def unconfirmed(failover: Failover, now: datetime) -> Outcome | None:
    """Ask again, and wait out the lease; a node that is heard and cannot stop is left to its refused writes."""
    fences = _look(failover, now)
    if fences.complete:
        event = Event.LEASE_RAN_OUT if fences.by_lease else Event.FENCED
        return Outcome(event, {"nodes": fences.how})
    _ask_again(failover, fences)
    waited = (now - failover.state_since).total_seconds()
    if core.listening_since(now) is None:
        return None  # nobody listened: that no answer came says nothing about the nodes
    if not fences.silent and waited >= conf.cluster_policy().fence_limit_s:
        left = dict.fromkeys(fences.open, "did not stop; its writes are refused and its slot is given away")
        return Outcome(Event.LEASE_RAN_OUT, {"nodes": {**fences.how, **left}})
    return None


def fence_epoch(failover: Failover) -> int:
    """Return the epoch below which ranks are ended: the first of this recovery."""
    return failover.from_epoch + 1


def _look(failover: Failover, now: datetime) -> _Fences:
    fences = _Fences()
    for slot in core.slots_of(failover.job):
        if slot.node is not None:
            _look_at(failover, slot.node, now, fences)
    return fences


def _look_at(failover: Failover, node: Node, now: datetime, fences: _Fences) -> None:
    order = launch.stop(
        node,
        job=failover.job,
        epoch=fence_epoch(failover),
        key=f"stop:{failover.pk}:{node.name}",
        failover=failover,
    )
    silent_s = _silent_s(node, now)
    if orders.succeeded(order) or _late_confirmation(failover, node):
        fences.how[node.name] = "confirmed"
    elif silent_s >= conf.cluster_policy().lease_s + LEASE_MARGIN_S:
        fences.how[node.name] = _told_silence(failover.job, silent_s)
        fences.by_lease = True
    elif silent_s > 2.5 * conf.cluster_policy().heartbeat_s:
        fences.silent.append(node.name)
    elif orders.is_open(order):
        fences.unanswered.append(node.name)
    else:
        fences.refused.append(node.name)


def _silent_s(node: Node, now: datetime) -> float:
    """Return for how long ingest listened and heard nothing of the node."""
    since = core.listening_since(now)
    if since is None:
        return 0.0
    return (now - max(node.last_seen_at or since, since)).total_seconds()


def _told_silence(job: Job, silent_s: float) -> str:
    """Say what the silence proves: that ranks ended only where the lease rule makes every agent end them."""
    ends = job.lease_rule == LeaseRule.STOP or (job.lease_rule == LeaseRule.STOP_WHEN_STUCK and job.nodes > 1)
    if ends:
        return f"silent for {silent_s:.1f} s: its lease of {conf.cluster_policy().lease_s:g} s ran out"
    return f"silent for {silent_s:.1f} s; its writes are refused"


def _late_confirmation(failover: Failover, node: Node) -> bool:
    again = OrderRecord.objects.filter(key=f"stop:{failover.pk}:{node.name}:again")
    return again.filter(state=OrderRecord.State.DONE).exists()


def _ask_again(failover: Failover, fences: _Fences) -> None:
    for node in Node.objects.filter(name__in=fences.refused):
        launch.stop(
            node,
            job=failover.job,
            epoch=fence_epoch(failover),
            key=f"stop:{failover.pk}:{node.name}:again",
            failover=failover,
        )
