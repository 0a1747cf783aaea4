"""AWAITING_APPROVAL: is there still something to decide, and has it been decided?"""

from datetime import datetime

from reliability.domain.failover import Event, Kind
from reliability.domain.health import NodeHealth
from reliability.domain.policy import Approval
from reliability.models import Failover, Job, Node, Rank
from reliability.services import launch, validations
from reliability.services.failovers import proposals
from reliability.services.failovers.moves import Outcome

POLICY = "policy"


def awaiting(failover: Failover, now: datetime) -> Outcome | None:
    """Close what needs no decision, approve what policy approves, and get the standby ready meanwhile."""
    job = failover.job
    if job.state in Job.TERMINAL:
        return Outcome(Event.CANCELLED, {"reason": f"The job is {job.state}."})
    if recovered_by_itself(failover):
        return Outcome(Event.CANCELLED, {"reason": "The node is heard again and training goes on.", "recovered": True})
    if failover.kind == Kind.RESTART_IN_PLACE or job.approval == Approval.AUTOMATIC:
        why = (
            "A restart in place needs no approval." if failover.kind == Kind.RESTART_IN_PLACE else "Policy: automatic."
        )
        return Outcome(Event.APPROVED, {"reason": why}, actor=POLICY)
    _get_ready(failover)
    return None


def recovered_by_itself(failover: Failover) -> bool:
    """Return whether the node that was given up is heard again and every rank has stepped on since the fault."""
    incident = failover.incident
    if incident.code != "node-lost" or incident.node is None:
        return False
    if incident.findings.exclude(action="observe").exclude(code="node-lost").exists():
        return False
    node = Node.objects.get(pk=incident.node.pk)
    if node.health != NodeHealth.HEALTHY:
        return False
    ranks = Rank.objects.filter(job_id=failover.job_id)
    return not ranks.exclude(state=Rank.State.RUNNING, progress_at__gt=failover.created_at).exists()


def stale(failover: Failover, now: datetime) -> proposals.Proposal | None:
    """Return what would happen now if it is not what the request shows, or if the request has expired."""
    fresh = proposals.build(failover.incident, Kind(failover.kind), now=now, refused=failover.refused_standbys)
    expired = failover.expires_at is not None and now >= failover.expires_at
    return fresh if expired or fresh.digest != failover.digest else None


def _get_ready(failover: Failover) -> None:
    """Check the proposed standby and warm its container while people read: it costs nothing and saves the time."""
    for change in failover.proposal.get("moves", []):
        node = Node.objects.filter(name=change.get("to") or "").first()
        if node is None or change.get("preempts"):
            continue  # another job's node is not touched before the decision
        launch.prepare(failover.job, node)
        if not validations.is_fresh(node, failover=failover):
            validations.begin(node, failover=failover)
