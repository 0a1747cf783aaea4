"""Recoveries: propose, approve, reject, cancel, and drive each one along the table (reliability/domain/failover.py).

`advance` may be called by any process at any time: it locks the job, reads everything anew, takes one step after
another and stops where it must wait. Every step is idempotent, so a process that dies in one leaves nothing undone.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import transaction

from reliability import conf
from reliability.domain.failover import OPEN, RUNNING, Event, Kind, State
from reliability.domain.faults import Action
from reliability.domain.policy import Approval
from reliability.errors import DomainError, IllegalTransition, StaleProposal
from reliability.models import Drill, Failover, FailoverEvent, Incident, Job, Node
from reliability.selectors import core
from reliability.services import clock, dispatch
from reliability.services.failovers import (
    approval,
    budget,
    effects,
    fencing,
    placing,
    proposals,
    restoring,
    starting,
)
from reliability.services.failovers.moves import AUTOMATION, Outcome, move

Step = Callable[[Failover, datetime], Outcome | None]
Person = PermissionsMixin | AnonymousUser | AbstractBaseUser

STEPS: Mapping[State, Step] = {
    State.AWAITING_APPROVAL: approval.awaiting,
    State.FENCING: fencing.fencing,
    State.FENCE_UNCONFIRMED: fencing.unconfirmed,
    State.WAITING_FOR_STANDBY: placing.waiting,
    State.VALIDATING: placing.validating,
    State.RESTORING: restoring.restoring,
    State.STARTING: starting.starting,
    State.VERIFYING: starting.verifying,
}
"""What is done in each open state."""

MAX_STEPS = 40
"""Steps of one call; a recovery that needs more goes on with the next reconciliation."""

PERMISSION = "reliability.approve_failover"


def propose(incident: Incident) -> Failover | None:
    """Open the recovery that an incident calls for; ends the job instead when its restart budget is used up.

    Returns the job's open recovery when there is one already.
    """
    if incident.job_id is None:
        raise DomainError("An incident without a job has no recovery.")
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=incident.job_id)
        standing = core.open_failover(job)
        if standing is not None or job.state in Job.TERMINAL:
            return standing
        failover = _open(incident, job)
        over = budget.exhausted(job, incident)
        if over:
            move(failover, Outcome(Event.GAVE_UP, {"reason": over}))
        else:
            dispatch.task("controller.advance", failover.pk)
    return failover


def _open(incident: Incident, job: Job, *, refused: list[dict[str, Any]] | None = None) -> Failover:
    now = clock.now()
    kind = Kind.FAILOVER if incident.action == Action.FAILOVER else Kind.RESTART_IN_PLACE
    proposal = proposals.build(incident, kind, now=now, refused=refused or ())
    manual = kind is Kind.FAILOVER and job.approval == Approval.MANUAL
    failover = Failover.objects.create(
        incident=incident,
        job=job,
        kind=kind,
        state_since=now,
        slot=job.slots.filter(node=incident.node).first() if incident.node else None,
        failed_node=incident.node,
        standby=Node.objects.filter(name=proposal.standby).first(),
        refused_standbys=refused or [],
        from_epoch=job.epoch,
        to_epoch=job.epoch + 1,
        restore_epoch=proposal.restore.snapshot.epoch if proposal.restore else None,
        restore_step=proposal.restore.snapshot.step if proposal.restore else None,
        fault_step=core.newest_step_reached(job),
        progress_step=core.newest_complete_step(job),
        proposal=proposal.shown,
        digest=proposal.digest,
        expires_at=now + timedelta(seconds=conf.cluster_policy().approval_ttl_s) if manual else None,
        fault_at=_fault_at(incident, now),
        created_at=now,
    )
    FailoverEvent.objects.create(
        failover=failover,
        at=now,
        event="proposed",
        target=State.AWAITING_APPROVAL,
        sentence="Proposed: this is what would be done.",
        actor=AUTOMATION,
    )
    Job.objects.filter(pk=job.pk).update(
        state=Job.State.WAITING if manual else Job.State.RECOVERING, state_reason=incident.summary
    )
    _link_drill(failover)
    dispatch.changed("overview", f"job:{job.pk}", f"failover:{failover.pk}")
    return failover


def _fault_at(incident: Incident, now: datetime) -> datetime:
    """The earliest sign: the first finding, or for a lost node the last that was heard of it."""
    signs = list(
        incident.findings.exclude(action=Action.OBSERVE, code="agent-silent").values_list("found_at", flat=True)
    )
    if incident.code == "node-lost" and incident.node and incident.node.last_seen_at:
        signs.append(incident.node.last_seen_at)
    return min(signs, default=now)


def _link_drill(failover: Failover) -> None:
    """A fault on the node of a running drill is that drill's."""
    drill = Drill.objects.filter(job=failover.job, state=Drill.State.RUNNING, failover=None).order_by("-id").first()
    if drill is not None and (failover.failed_node_id in (None, drill.node_id)):
        Drill.objects.filter(pk=drill.pk).update(failover=failover)


def supersede(failover: Failover, incident: Incident) -> Failover:
    """Replace an open recovery by one that answers what is known now."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=failover.job_id)
        failover = Failover.objects.select_for_update().get(pk=failover.pk)
        return _replace(failover, incident, job, "A worse fault was found.")


def _replace(failover: Failover, incident: Incident, job: Job, reason: str) -> Failover:
    fresh = proposals.build(
        incident, Kind.FAILOVER if incident.action == Action.FAILOVER else Kind(failover.kind), now=clock.now()
    )
    changed = proposals.difference(failover, fresh.shown)
    move(failover, Outcome(Event.SUPERSEDED, {"reason": reason, "changed": changed}))
    successor = _open(incident, job, refused=list(failover.refused_standbys))
    Failover.objects.filter(pk=failover.pk).update(superseded_by=successor)
    Failover.objects.filter(pk=successor.pk).update(fault_at=min(failover.fault_at, successor.fault_at))
    Drill.objects.filter(failover=failover, state=Drill.State.RUNNING).update(failover=successor)
    dispatch.task("controller.advance", successor.pk)
    return successor


def approve(failover: Failover, *, by: Person, digest: str, note: str = "") -> None:
    """Start a recovery as it was shown. Raises PermissionDenied, IllegalTransition, StaleProposal.

    What would happen is computed again: if it is not what `digest` stands for, the request is replaced by one that
    shows the difference, and nothing is started.
    """
    actor = _allowed(by)
    successor: Failover | None = None
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        now = clock.now()
        if approval.recovered_by_itself(failover):
            advance(failover.pk)
            raise_after = StaleProposal("The node came back and training goes on: there is nothing left to do.")
        elif digest != failover.digest:
            raise_after = StaleProposal("The request you approved is not the one that stands now.")
        elif approval.stale(failover, now) is not None:
            job = Job.objects.get(pk=failover.job_id)
            successor = _replace(failover, failover.incident, job, "The situation changed before the decision.")
            raise_after = StaleProposal(f"The situation changed: request {successor.pk} takes this one's place.")
        else:
            _decide(failover, Event.APPROVED, actor, note, now)
            dispatch.task("controller.advance", failover.pk)
            return
    raise raise_after


def reject(failover: Failover, *, by: Person, digest: str, note: str = "") -> None:
    """Refuse a recovery: nothing is touched and the job waits for a person. Raises as `approve` does."""
    actor = _allowed(by)
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        if digest != failover.digest:
            raise StaleProposal("The request you rejected is not the one that stands now.")
        _decide(failover, Event.REJECTED, actor, note, clock.now())


def cancel(failover: Failover, *, by: Person) -> None:
    """Withdraw a request that nobody has decided. After that it goes through: raises IllegalTransition."""
    actor = _allowed(by)
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        _decide(failover, Event.CANCELLED, actor, "", clock.now())


def _allowed(by: Person) -> str:
    if not getattr(by, "is_active", False) or not by.has_perm(PERMISSION):  # type: ignore[union-attr]
        raise PermissionDenied("Deciding on a failover needs the permission approve_failover.")
    return str(by.get_username())  # type: ignore[union-attr]


def _locked_for_decision(failover: Failover) -> Failover:
    Job.objects.select_for_update().get(pk=failover.job_id)
    locked = Failover.objects.select_for_update().get(pk=failover.pk)
    if locked.state in RUNNING:
        whom = f" by {locked.decided_by}" if locked.decided_by else ""
        raise IllegalTransition(
            f"Failover {locked.pk} was approved{whom} and is past the point of no return ({locked.state}).",
            hint="It goes on by itself; to end it, stop the job.",
        )
    if locked.state != State.AWAITING_APPROVAL:
        raise IllegalTransition(f"Failover {locked.pk} is {locked.state}: there is nothing to decide.")
    return locked


def _decide(failover: Failover, event: Event, actor: str, note: str, now: datetime) -> None:
    Failover.objects.filter(pk=failover.pk).update(decided_by=actor, decided_at=now, decision_note=note)
    word = {Event.APPROVED: "Approved", Event.REJECTED: "Rejected", Event.CANCELLED: "Cancelled"}[event]
    reason = f"{word} by {actor}." + (f" {note}" if note else "")
    move(failover, Outcome(event, {"reason": reason, "note": note}, actor=actor))


def advance(failover_id: int) -> None:
    """Take all steps that can be taken now."""
    for _ in range(MAX_STEPS):
        if not step(failover_id):
            return


def step(failover_id: int) -> bool:
    """Take one step in one transaction. Returns whether the state changed."""
    with transaction.atomic():
        job_id = Failover.objects.values_list("job_id", flat=True).get(pk=failover_id)
        Job.objects.select_for_update().get(pk=job_id)
        failover = Failover.objects.select_for_update().get(pk=failover_id)
        if failover.state not in OPEN:
            return False
        now = clock.now()
        outcome = STEPS[State(failover.state)](failover, now)
        if outcome is None:
            return _refreshed(failover, now)
        if outcome.event is Event.APPROVED:
            _note_policy(failover, outcome, now)
        move(failover, outcome)
        return True


def _note_policy(failover: Failover, outcome: Outcome, now: datetime) -> None:
    Failover.objects.filter(pk=failover.pk).update(
        decided_by=outcome.actor, decided_at=now, decision_note=str(outcome.detail.get("reason", ""))
    )


def _refreshed(failover: Failover, now: datetime) -> bool:
    """Replace a waiting request that no longer shows what would happen."""
    if failover.state != State.AWAITING_APPROVAL or approval.stale(failover, now) is None:
        return False
    job = Job.objects.get(pk=failover.job_id)
    _replace(failover, failover.incident, job, "The situation changed before the decision.")
    return False


__all__ = ["STEPS", "advance", "approve", "cancel", "effects", "propose", "reject", "step", "supersede"]
