"""Which nodes could take a slot, what occupies them, and which are kept free for a recovery?"""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q, QuerySet

from reliability.domain.failover import OPEN, Event
from reliability.domain.health import SERVING, NodeHealth, NodeRole
from reliability.domain.standby import Candidate
from reliability.models import FailoverEvent, Job, Node
from reliability.selectors import core, maintenance


def candidates(job: Job, *, now: datetime, exclude: Iterable[str] = ()) -> list[Candidate]:
    """Return what is known of every node that could take a slot of the job.

    These are the nodes that hold no slot, and the standbys and preemptible nodes on which another job runs.
    """
    held = _holders(job, now)
    occupied = _occupants(job)
    nodes = core.free_nodes() | _lent(occupied)
    rows = nodes.exclude(name__in=list(exclude)).order_by("name")
    return [_candidate(node, job, now, held.get(node.name, ""), occupied.get(node.pk, "")) for node in rows]


def kept_free() -> dict[str, tuple[int, int]]:
    """Return name of a node -> (failover, its job) for the nodes on which a job was stopped to make room.

    Until that recovery is over nobody else takes them, or the preempted job would have been stopped for nothing.
    """
    rows = FailoverEvent.objects.filter(event=Event.PREEMPTED, failover__state__in=OPEN).select_related("failover")
    return {str(row.detail["node"]): (row.failover_id, row.failover.job_id) for row in rows}


def _occupants(job: Job) -> dict[int, str]:
    rows = core.active_slots().exclude(job=job).values_list("node_id", "job__name")
    return {node: name for node, name in rows if node is not None}


def _lent(occupied: Iterable[int]) -> QuerySet[Node]:
    meant = Q(preemptible=True) | Q(role_hint=NodeRole.STANDBY)
    return Node.objects.filter(meant, pk__in=list(occupied))


def _holders(job: Job, now: datetime) -> dict[str, str]:
    names = dict(Node.objects.values_list("pk", "name"))
    holders = {
        name: f"failover {failover}, for which it was made free"
        for name, (failover, of_job) in kept_free().items()
        if of_job != job.pk
    }
    for node, windows in maintenance.current(now).items():
        holders[names[node]] = maintenance.told(windows[0])
    for hold in core.active_holds().select_related("node"):
        holders[hold.node.name] = f"{hold.owner} ({hold.reason})"
    return holders


def _candidate(node: Node, job: Job, now: datetime, held_by: str, occupied_by: str) -> Candidate:
    verdict, ended_at = core.validation_of(node)
    warm = core.is_warm(node, job)
    return Candidate(
        node=node.name,
        tier=node.tier,
        healthy=node.health in SERVING,
        unknown=node.health == NodeHealth.UNKNOWN,
        degraded=node.health == NodeHealth.DEGRADED,
        condition=node.health_reason,
        held_by=held_by,
        occupied_by=occupied_by,
        preemptible=node.preemptible,
        runtime_fits=node.runtime == job.runtime,
        image_present=warm or job.runtime == "process",
        warm=warm,
        validation=verdict,
        validation_age_s=(now - ended_at).total_seconds() if ended_at else None,
    )
