"""Recoveries: propose, approve, reject, cancel, and drive each one along the table (reliability/domain/failover.py).

`advance` may be called by any process at any time: it locks the job, reads everything anew, takes one step after
another and stops where it must wait. Every step is idempotent, so a process that dies in one leaves nothing undone.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import transaction

from reliability.domain.budget import Verdict
from reliability.domain.failover import OPEN, RUNNING, Event, State
from reliability.errors import DomainError, IllegalTransition, StaleProposal
from reliability.models import Failover, Incident, Job
from reliability.selectors import core
from reliability.services import clock, dispatch
from reliability.services.failovers import (
    approval,
    budget,
    effects,
    fencing,
    holding,
    opening,
    placing,
    restoring,
    starting,
)
from reliability.services.failovers.moves import Outcome, move

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
ASKING = (PERMISSION, "reliability.operate_job")
CHANGED = "The situation changed before the decision."


def propose(incident: Incident) -> Failover | None:
    """Open the recovery that an incident calls for; ends the job instead when its restart budget is used up.

    Returns the job's open recovery when there is one already, None where trying again leads to the same end: the job
    then waits for a person.
    """
    if incident.job_id is None:
        raise DomainError("An incident without a job has no recovery.")
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=incident.job_id)
        standing = core.open_failover(job)
        if standing is not None or job.state in Job.TERMINAL:
            return standing
        decision, end = budget.after(job, incident)
        if decision.verdict is Verdict.NO_PROGRESS:
            holding.no_progress(job, incident, end, decision)
            return None
        failover = opening.open_for(incident, job)
        if decision.verdict is Verdict.USED_UP and not budget.asks_a_person(failover):
            move(failover, Outcome(Event.GAVE_UP, {"reason": decision.reason}))
        else:
            budget.show(failover, decision)
            dispatch.task("controller.advance", failover.pk)
    return failover


def propose_again(job: Job, *, by: Person) -> Failover:
    """Open a fresh recovery of a job that waits for a person, for what was found last.

    Raises PermissionDenied, and DomainError when the job does not wait, a recovery is open or nothing was found.
    """
    _may(by, ASKING, "Asking for a recovery needs the permission operate_job or approve_failover.")
    return recover(job, by=_name(by))


def recover(job: Job, *, by: str) -> Failover:
    """Do what `propose_again` does, for whoever the caller vouches for. Raises DomainError."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job.pk)
        standing = core.open_failover(job)
        if standing is not None:
            raise DomainError(f"Failover {standing.pk} of job {job.name} is open.", hint="Decide on that one.")
        if job.state != Job.State.WAITING or job.epoch == 0:
            raise DomainError(f"Job {job.name} is {job.get_state_display()}.", hint="Only a waiting job is recovered.")
        incident = core.incidents_of(job).order_by("-id").first()
        if incident is None:
            raise DomainError(f"Nothing was ever found about job {job.name}.", hint="Stop it and start it again.")
        return go_on(job, incident, by=by)


def go_on(job: Job, incident: Incident, *, by: str) -> Failover:
    """Open the recovery of a locked job that has none, because a person wants it: budgets are those of automation."""
    Incident.objects.filter(pk=incident.pk).update(closed_at=None, close_reason="")
    failover = opening.open_for(incident, job)
    failover.events.filter(event="proposed").update(actor=by)
    dispatch.task("controller.advance", failover.pk)
    return failover


def hold(incident: Incident, *, same_step: bool = False) -> None:
    """Have the job of an incident wait for a person; see `holding.hold`."""
    if incident.job is None:
        raise DomainError("An incident without a job holds none.")
    holding.hold(incident.job, incident, same_step=same_step)


def supersede(failover: Failover, incident: Incident, *, reason: str = "A worse fault was found.") -> Failover:
    """Replace an open recovery by one that answers what is known now."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=failover.job_id)
        failover = Failover.objects.select_for_update().get(pk=failover.pk)
        return opening.replace(failover, incident, job, reason)


def approve(failover: Failover, *, by: Person, digest: str, note: str = "") -> None:
    """Start a recovery as it was shown. Raises PermissionDenied, IllegalTransition, StaleProposal.

    What would happen is computed again: if it is not what `digest` stands for, the request is replaced by one that
    shows the difference, and nothing is started.
    """
    actor = decider(by)
    successor: Failover | None = None
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        now = clock.now()
        if approval.nothing_left(failover):
            advance(failover.pk)
            raise_after = StaleProposal("All ranks finished: there is nothing left to do.")
        elif approval.recovered_by_itself(failover):
            advance(failover.pk)
            raise_after = StaleProposal("The node came back and training goes on: there is nothing left to do.")
        elif digest != failover.digest:
            raise_after = StaleProposal("The request you approved is not the one that stands now.")
        elif approval.stale(failover, now):
            successor = _anew(failover, CHANGED)
            raise_after = StaleProposal(f"The situation changed: request {successor.pk} takes this one's place.")
        else:
            _decide(failover, Event.APPROVED, actor, note, now)
            dispatch.task("controller.advance", failover.pk)
            return
    raise raise_after


def reject(failover: Failover, *, by: Person, digest: str, note: str = "") -> None:
    """Refuse a recovery: nothing is touched and the job waits for a person. Raises as `approve` does."""
    actor = decider(by)
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        if digest != failover.digest:
            raise StaleProposal("The request you rejected is not the one that stands now.")
        _decide(failover, Event.REJECTED, actor, note, clock.now())


def cancel(failover: Failover, *, by: Person) -> None:
    """Withdraw a request that nobody has decided. After that it goes through: raises IllegalTransition."""
    actor = decider(by)
    with transaction.atomic():
        failover = _locked_for_decision(failover)
        _decide(failover, Event.CANCELLED, actor, "", clock.now())


def decider(by: Person) -> str:
    """Return the name of a person who may decide on a failover. Raises PermissionDenied."""
    _may(by, (PERMISSION,), "Deciding on a failover needs the permission approve_failover.")
    return _name(by)


def _may(by: Person, permissions: Sequence[str], refusal: str) -> None:
    """Raise PermissionDenied unless the person has one of the permissions."""
    active = getattr(by, "is_active", False)
    if not active or not any(by.has_perm(each) for each in permissions):  # type: ignore[union-attr]
        raise PermissionDenied(refusal)


def _name(by: Person) -> str:
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
        if outcome.event is Event.SUPERSEDED:
            _anew(failover, str(outcome.detail["reason"]))
            return False
        move(failover, outcome)
        return True


def _note_policy(failover: Failover, outcome: Outcome, now: datetime) -> None:
    Failover.objects.filter(pk=failover.pk).update(
        decided_by=outcome.actor, decided_at=now, decision_note=str(outcome.detail.get("reason", ""))
    )


def _refreshed(failover: Failover, now: datetime) -> bool:
    """Replace a waiting request that no longer shows what would happen."""
    if failover.state == State.AWAITING_APPROVAL and approval.stale(failover, now):
        _anew(failover, CHANGED)
    return False


def _anew(failover: Failover, reason: str) -> Failover:
    return opening.replace(failover, failover.incident, Job.objects.get(pk=failover.job_id), reason)


__all__ = [
    "STEPS",
    "advance",
    "approve",
    "cancel",
    "decider",
    "effects",
    "go_on",
    "hold",
    "propose",
    "propose_again",
    "reject",
    "step",
    "supersede",
]
