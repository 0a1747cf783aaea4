"""What may a job still spend on being started again after its last end?

The rules are in domain/budget.py. The ends are rows of the database, so that a restart of the controller changes
nothing. Lost nodes and drills are not the program's doing and do not count.
"""

from datetime import datetime, timedelta

from reliability.domain import budget
from reliability.domain.budget import Decision, Verdict
from reliability.domain.failover import Kind
from reliability.domain.modes import Mode
from reliability.domain.snapshots import SnapshotId
from reliability.models import AttemptEnd, Epoch, Failover, Incident, Job
from reliability.selectors import attempts, core, precision
from reliability.services import snapshots
from reliability.services.failovers import endings, fitness


def decide(job: Job, end: AttemptEnd) -> Decision:
    """Return what follows an end of this job."""
    ended = attempts.ended(job, through=end.number)
    if not ended:
        ended = [attempts.attempt(end)]
    return budget.decide(ended, attempts.allowance(job), older=_older(job, end))


def _older(job: Job, end: AttemptEnd) -> bool:
    """Return whether a snapshot is left that is older than the one the attempt began from."""
    if end.start_step is None:
        return False
    return any(each.step < end.start_step for each in core.complete_snapshots(job))


def after(job: Job, incident: Incident) -> tuple[Decision, AttemptEnd]:
    """Keep how the present attempt ended and return what follows; a snapshot that is doubted is distrusted.

    Where the epoch was raised and nothing was started in it, the end before is still the last there was.
    """
    end = _before_what_never_ran(job) or endings.of_incident(job, incident, kind=fitness.kind_for(incident, job))
    decision = decide(job, end)
    if decision.verdict is Verdict.OLDER_SNAPSHOT:
        distrust(job, end, decision.reason)
    return decision, end


def _before_what_never_ran(job: Job) -> AttemptEnd | None:
    """Return the last end of a job whose present epoch has seen no attempt, None where one ran or none ended yet."""
    if Epoch.objects.filter(job=job, number=job.epoch).exists():
        return None
    return AttemptEnd.objects.filter(job=job, number__lt=job.epoch).order_by("-number").first()


def distrust(job: Job, end: AttemptEnd, reason: str) -> None:
    """Restore the snapshot that an attempt began from never again."""
    if end.start_epoch is not None and end.start_step is not None:
        snapshots.distrust(job, SnapshotId(end.start_epoch, end.start_step), reason=reason)


def asks_a_person(failover: Failover) -> bool:
    """Return whether a person decides on it anyway: the budget is that of automation alone."""
    return precision.mode_of(failover.incident, failover.job, kind=Kind(failover.kind)) is not Mode.AUTOMATIC


def show(failover: Failover, decision: Decision) -> None:
    """Show with a request why automation would not go on; the person who decides may."""
    if decision.verdict is Verdict.USED_UP:
        failover.proposal = {**failover.proposal, "budget": decision.reason}
        failover.save(update_fields=["proposal"])


def start_after(job: Job, end: AttemptEnd, *, since: datetime) -> datetime | None:
    """Return before when the next attempt is not started, None where it may be at once."""
    wait_s = decide(job, end).wait_s
    return since + timedelta(seconds=wait_s) if wait_s > 0 else None


def start_error(job: Job, incident: Incident) -> str:
    """Return why a job that is held cannot be started at all, '' where a person may still make it go on."""
    if incident.code not in budget.AT_START or not core.any_failed(job):
        return ""
    decision, _ = after(job, incident)
    return decision.reason if decision.verdict is Verdict.USED_UP else ""
