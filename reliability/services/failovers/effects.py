"""What else changes when a failover takes an event, in the same transaction: the job's epoch, its state, holds."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from reliability.domain.failover import Event, State
from reliability.domain.faults import FaultClass
from reliability.domain.snapshots import Tier
from reliability.models import AttemptEnd, Epoch, Failover, Hold, Incident, Job, Node, Rank
from reliability.selectors import core
from reliability.services import launch, node_health, nodes, orders, snapshots
from reliability.services.failovers import budget, closing, endings, fitness, skipping

Effect = Callable[[Failover, State, datetime, Mapping[str, Any]], None]
AFTER_START = (State.STARTING, State.VERIFYING)
WAITS = "waits"
"""Detail of a recovery that is given up so that its job waits for a person."""


def apply(failover: Failover, event: Event, *, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """Do what belongs to the event."""
    effect = EFFECTS.get(event)
    if effect is not None:
        effect(failover, source, now, detail)


def _begin(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """The point of no return: from here on every writer of the old attempt is refused."""
    job = Job.objects.get(pk=failover.job_id)
    failover.from_epoch, failover.to_epoch = job.epoch, job.epoch + 1
    # Ranks may have gone on, or told of their last step, since the request was made.
    failover.fault_step = max(filter(None, (failover.fault_step, core.newest_step_reached(job))), default=0)
    failover.start_after = _back_off(failover, job)
    failover.save(update_fields=["from_epoch", "to_epoch", "fault_step", "start_after"])
    stood_still = Epoch.objects.filter(job=job, number=failover.from_epoch, stopped_at=None)
    stood_still.update(stopped_at=failover.fault_at)
    _set_epoch(failover, failover.to_epoch)
    _set_job(failover, Job.State.RECOVERING, failover.incident.summary)
    bad = fitness.condemned(failover.incident)
    if bad is not None:
        nodes.mark_unhealthy(bad, failover.incident)
    of_the_old_attempt = {"job_id": failover.job_id, "epoch__lt": failover.to_epoch}
    orders.withdraw(now, kind__in=("start", "restore", "set_period"), **of_the_old_attempt)


def _back_off(failover: Failover, job: Job) -> datetime | None:
    """Keep how the old attempt ended, and return before when no new one is started."""
    skipping.close(job)
    if not Epoch.objects.filter(job=job, number=job.epoch).exists():
        return None
    end = endings.of_incident(job, failover.incident, kind=failover.kind, failover=failover)
    return budget.start_after(job, end, since=failover.fault_at)


def _set_epoch(failover: Failover, epoch: int) -> None:
    Job.objects.filter(pk=failover.job_id).update(epoch=epoch)
    Rank.objects.filter(job_id=failover.job_id).update(state=Rank.State.WAITING, exit_code=None)


def _set_job(failover: Failover, state: str, reason: str, **more: Any) -> None:
    Job.objects.filter(pk=failover.job_id).exclude(state__in=Job.TERMINAL).update(
        state=state, state_reason=reason, **more
    )


def _next_epoch(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """Once ranks were told to start, another try needs an epoch of its own."""
    failover.attempt += 1
    failover.to_epoch += 1
    wait_s = float(detail.get("wait_s") or 0.0)
    failover.start_after = now + timedelta(seconds=wait_s) if wait_s > 0 else None
    failover.save(update_fields=["attempt", "to_epoch", "start_after"])
    _set_epoch(failover, failover.to_epoch)
    orders.withdraw(now, failover=failover, epoch__lt=failover.to_epoch, kind__in=("start", "restore"))


def _standby_refused(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    if source in AFTER_START:
        _next_epoch(failover, source, now, detail)
    else:
        _choose_anew(failover, source, now, detail)


def _snapshot_refused(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    failover.attempt += 1
    failover.save(update_fields=["attempt"])
    _choose_anew(failover, source, now, detail)


def _choose_anew(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """The epoch's row says what it restores; without it the restore point is chosen again."""
    Epoch.objects.filter(job_id=failover.job_id, number=failover.to_epoch).delete()
    orders.withdraw(now, failover=failover, kind="restore")


def _complete(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    Epoch.objects.filter(job_id=failover.job_id, number=failover.to_epoch).update(running_at=now)
    _set_job(failover, Job.State.RUNNING, "")
    _close_incident(failover, now, f"The job goes on since step {failover.restore_step or 0}.")
    _set_replaced_aside(failover)


def _set_replaced_aside(failover: Failover) -> None:
    """However a recovery ends: a node that lost its slot in it is not forgotten."""
    for change in failover.moves:
        node = Node.objects.filter(name=change["from"]).first()
        if node is not None:
            set_aside(failover, node, str(change.get("why") or failover.incident.summary))


def set_aside(failover: Failover, node: Node, why: str) -> Hold:
    """The node that was replaced takes no new work until its hold is lifted, and gives its container up."""
    nodes.to_standby(node)
    held = nodes.hold(
        node,
        owner=nodes.AUTOMATION,
        reason=f"{core.replaced_in(failover.job)}(failover {failover.pk}): {why}",
    )
    launch.release(node, job=failover.job, epoch=failover.to_epoch)
    if failover.incident.fault_class == FaultClass.HARDWARE:
        snapshots.lose_local_copies(node, failover.job, (Tier.MEMORY, Tier.PARTNER))
    return held


def _close_incident(failover: Failover, now: datetime, reason: str) -> None:
    Incident.objects.filter(pk=failover.incident_id, closed_at=None).update(closed_at=now, close_reason=reason)


def _give_up(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """The job ends here, with its ranks stopped and everything that was tried on record, or waits for a person."""
    reason = str(detail.get("reason") or "The recovery cannot go on.")
    _set_replaced_aside(failover)
    if detail.get(WAITS):
        orders.withdraw(now, failover=failover)
        return
    _close_incident(failover, now, reason)
    closing.end(Job.objects.get(pk=failover.job_id), Job.State.FAILED, reason)


def _declined(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    """Nothing is done any more for this incident; what the job's state is, a person decided or the job shows."""
    reason = str(detail.get("reason") or "No recovery was started.")
    _close_incident(failover, now, reason)
    _set_replaced_aside(failover)
    orders.withdraw(now, failover=failover)
    if source is State.AWAITING_APPROVAL and failover.decided_by:
        _absolve(failover, reason)
    if detail.get("finished"):
        closing.end(Job.objects.get(pk=failover.job_id), Job.State.COMPLETED, reason)
        return
    goes_on = bool(detail.get("recovered") or detail.get("held_back"))
    if goes_on:
        AttemptEnd.objects.filter(job=failover.job_id, number=failover.from_epoch).delete()  # it goes on after all
    _set_job(failover, Job.State.RUNNING if goes_on else Job.State.WAITING, "" if goes_on else reason)


def _absolve(failover: Failover, reason: str) -> None:
    """A person said no: the node that keeps its slot is called bad no longer."""
    node = failover.failed_node
    if node is not None and failover.job.slots.filter(node=node).exists():
        node_health.absolve(node, failover.incident, note=reason)


def _superseded(failover: Failover, source: State, now: datetime, detail: Mapping[str, Any]) -> None:
    _set_replaced_aside(failover)
    orders.withdraw(now, failover=failover)


EFFECTS: Mapping[Event, Effect] = {
    Event.APPROVED: _begin,
    Event.START_FAILED: _next_epoch,
    Event.VERIFY_FAILED: _next_epoch,
    Event.STANDBY_REFUSED: _standby_refused,
    Event.SNAPSHOT_REFUSED: _snapshot_refused,
    Event.VERIFIED: _complete,
    Event.GAVE_UP: _give_up,
    Event.REJECTED: _declined,
    Event.CANCELLED: _declined,
    Event.SUPERSEDED: _superseded,
}
