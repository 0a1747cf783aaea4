"""AWAITING_APPROVAL: is there still something to decide, and has it been decided?"""

from datetime import datetime, timedelta

from reliability import conf
from reliability.domain.failover import Event, Kind
from reliability.domain.health import SERVING
from reliability.domain.modes import Mode
from reliability.models import Failover, Job, Node
from reliability.selectors import core, precision
from reliability.services import dispatch, launch, validations
from reliability.services.failovers import proposals, spoilt
from reliability.services.failovers.moves import Outcome

POLICY = "policy"


def awaiting(failover: Failover, now: datetime) -> Outcome | None:
    """Close what needs no decision, approve what policy approves, and get the standby ready meanwhile."""
    job = failover.job
    if job.state in Job.TERMINAL:
        return Outcome(Event.CANCELLED, {"reason": f"The job is {job.state}."})
    if nothing_left(failover):
        return Outcome(
            Event.CANCELLED, {"reason": "All ranks finished: there is nothing left to do.", "finished": True}
        )
    if recovered_by_itself(failover):
        return Outcome(Event.CANCELLED, {"reason": "The node is heard again and training goes on.", "recovered": True})
    if precision.mode_of(failover.incident, job, kind=Kind(failover.kind)) is Mode.AUTOMATIC:
        why = (
            "A restart in place needs no approval." if failover.kind == Kind.RESTART_IN_PLACE else "Policy: automatic."
        )
        return Outcome(Event.APPROVED, {"reason": why}, actor=POLICY)
    if failover.expires_at is None:
        _ask(failover, now)
    _get_ready(failover)
    return None


def _ask(failover: Failover, now: datetime) -> None:
    """It was to be automatic when it was opened and is not any more: from now on it waits for a person."""
    failover.expires_at = now + timedelta(seconds=conf.cluster_policy().approval_ttl_s)
    failover.save(update_fields=["expires_at"])
    Job.objects.filter(pk=failover.job_id).exclude(state__in=Job.TERMINAL).update(state=Job.State.WAITING)
    dispatch.changed("overview", f"job:{failover.job_id}", f"failover:{failover.pk}")


def recovered_by_itself(failover: Failover) -> bool:
    """Return whether the node that was given up is heard again and every rank has stepped on since the fault."""
    incident = failover.incident
    if incident.code != "node-lost" or incident.node is None:
        return False
    if incident.findings.exclude(action="observe").exclude(code="node-lost").exists():
        return False
    node = Node.objects.get(pk=incident.node.pk)
    if node.health not in SERVING:
        return False
    return core.all_step_on(failover.job, since=failover.created_at)


def nothing_left(failover: Failover) -> bool:
    """Return whether every rank of the present attempt has ended well: there is no work that could be recovered."""
    return failover.job.epoch > 0 and core.all_finished(failover.job)


def stale(failover: Failover, now: datetime) -> bool:
    """Return whether something else would happen now than the request shows, or whether it has expired.

    A restore point that only rose is shown in place: the request stays the same, with the time it has left.
    """
    spoilt.distrust(failover.incident, failover.job)
    fresh = proposals.build(failover.incident, now=now, refused=failover.refused_standbys)
    expired = failover.expires_at is not None and now >= failover.expires_at
    if expired or fresh.digest != failover.digest or proposals.falls_back(failover, fresh.shown):
        return True
    if fresh.shown["restore"] != failover.proposal.get("restore"):
        _show(failover, fresh)
    return False


def _show(failover: Failover, fresh: proposals.Proposal) -> None:
    snapshot = fresh.restore.snapshot if fresh.restore else None
    failover.proposal = {**failover.proposal, "restore": fresh.shown["restore"]}
    failover.restore_epoch = snapshot.epoch if snapshot else None
    failover.restore_step = snapshot.step if snapshot else None
    failover.save(update_fields=["proposal", "restore_epoch", "restore_step"])
    dispatch.changed(f"failover:{failover.pk}")


def _get_ready(failover: Failover) -> None:
    """Check the proposed standby and warm its container while people read: it costs nothing and saves the time."""
    for change in failover.proposal.get("moves", []):
        node = Node.objects.filter(name=change.get("to") or "").first()
        if node is None or change.get("preempts"):
            continue  # another job's node is not touched before the decision
        launch.prepare(failover.job, node)
        if not validations.is_fresh(node, failover=failover):
            validations.begin(node, failover=failover)
