"""A person has that done by hand which was only observed, or only proposed for a node."""

from django.core.exceptions import PermissionDenied
from django.db import transaction

from reliability.domain.faults import Action
from reliability.domain.modes import Mode
from reliability.errors import DomainError, StaleProposal
from reliability.models import Decision, Failover, Finding, Incident, Job
from reliability.selectors import core
from reliability.services import clock, decisions, dispatch, failovers, nodes
from reliability.services.incident_locks import locked

OPERATE = "reliability.operate_job"
HOLD_REASON = "Decision {pk}, had done by hand: {summary}"


def may_be_done(decision: Decision) -> bool:
    """Return whether it can still be done by hand: it was not done, and what it was about still stands."""
    not_done = not decision.by_hand and (decision.mode == Mode.SHADOW or _proposed_hold(decision))
    standing = core.open_failover(decision.job) if not_done and decision.job else None
    return not_done and standing is None and not _over(decision)


def _proposed_hold(decision: Decision) -> bool:
    return decision.mode == Mode.PROPOSE and decision.action == Action.HOLD and decision.job_id is None


def _over(decision: Decision) -> str:
    """Return why it can be done no more, '' while it can."""
    job = decision.job
    if job is None:
        return "" if decision.node else "The node is not known any more."
    if job.state in Job.TERMINAL:
        return f"Job {job.name} is {job.get_state_display()}."
    if job.epoch != decision.epoch:
        return f"It was about epoch {decision.epoch} of job {job.name}, which is at epoch {job.epoch} now."
    if decision.node_id and not job.slots.filter(node=decision.node_id).exists():
        return f"{decision.node} takes no part in job {job.name} any more."
    return ""


def carry_out(decision: Decision, *, by: decisions.Person) -> Failover | None:
    """Do by hand what was only observed. A recovery is opened as a request, to be approved as it is shown.

    Returns that request, None where a hold was made. Raises PermissionDenied, StaleProposal when the situation has
    changed, and DomainError when it was done already or a recovery is open.
    """
    if not getattr(by, "is_active", False) or not by.has_perm(OPERATE):  # type: ignore[union-attr]
        raise PermissionDenied("Having a decision carried out needs the permission operate_job.")
    name = str(by.get_username())  # type: ignore[union-attr]
    with transaction.atomic():
        incident = locked(decision.incident)
        standing = Decision.objects.select_for_update(no_key=True, of=("self",)).get(pk=decision.pk)
        _check(standing)
        Decision.objects.filter(pk=standing.pk).update(by_hand=name, by_hand_at=clock.now())
        _raise(incident, standing)
        failover = _do(standing, incident, name)
        decision.refresh_from_db()
        dispatch.changed("overview", f"incident:{incident.pk}")
    return failover


def _check(decision: Decision) -> None:
    if decision.by_hand:
        raise DomainError(f"{decision.by_hand} had it done already.", hint="See the incident for what became of it.")
    if not (decision.mode == Mode.SHADOW or _proposed_hold(decision)):
        raise DomainError(
            f"Decision {decision.pk} is not only observed.", hint="Its recovery is decided on its own page."
        )
    over = _over(decision)
    if over:
        raise StaleProposal(over, hint="There is nothing left to do for this decision.")
    standing = core.open_failover(decision.job) if decision.job else None
    if standing is not None:
        raise DomainError(f"Failover {standing.pk} of job {decision.job} is open.", hint="Decide on that one.")


def _raise(incident: Incident, decision: Decision) -> None:
    """The incident becomes what was decided, nothing of it is held back, and it is open again if it was closed."""
    incident.code, incident.node = decision.code, decision.node
    incident.fault_class, incident.action = decision.fault_class, decision.action
    incident.summary = decision.summary or incident.summary
    incident.closed_at, incident.close_reason = None, ""
    incident.held_back, incident.meanwhile = False, ""
    incident.save()
    if incident.job_id is not None:  # a job has one at a time
        others = Incident.objects.filter(job=incident.job_id, closed_at=None).exclude(pk=incident.pk)
        Finding.objects.filter(incident__in=others).update(incident=incident)
        others.update(closed_at=clock.now(), close_reason=f"Part of incident {incident.pk}, which was done by hand.")


def _do(decision: Decision, incident: Incident, name: str) -> Failover | None:
    if decision.action == Action.HOLD:
        _hold(decision, incident, name)
        return None
    job = decision.job
    if job is None:
        raise DomainError("A decision about no job has no recovery.")
    if job.state in Job.TERMINAL:
        raise StaleProposal(f"Job {job} is over.", hint="There is nothing left to do.")
    return failovers.go_on(job, incident, by=name)


def _hold(decision: Decision, incident: Incident, name: str) -> None:
    if decision.job_id:
        failovers.hold(incident)
    elif decision.node is not None:
        reason = HOLD_REASON.format(pk=decision.pk, summary=decision.summary)
        nodes.mark_unhealthy(decision.node, incident)
        nodes.hold(decision.node, owner=name, reason=reason)
