"""How often may a job be restarted without having got anywhere?

Counted from the failovers in the database, so that a restart of the controller changes nothing. A recovery counts
until a complete snapshot newer than the one at that recovery proves progress. Hardware faults and drills are not the
program's doing and do not count.
"""

from reliability.domain.failover import Event
from reliability.domain.faults import FaultClass
from reliability.models import Drill, Failover, Incident, Job
from reliability.selectors import core


def spent(job: Job) -> list[Failover]:
    """Return the recoveries without progress since, newest first."""
    newest = core.newest_complete_step(job)
    rows = Failover.objects.filter(job=job, events__event=Event.APPROVED).select_related("incident").order_by("-id")
    if job.start_asked_at is not None:
        rows = rows.filter(created_at__gte=job.start_asked_at)  # a person who starts it again gives it a new budget
    counted = []
    for failover in rows.distinct():
        if newest is not None and (failover.progress_step is None or failover.progress_step < newest):
            break
        if failover.incident.fault_class != FaultClass.HARDWARE and not _drilled(failover):
            counted.append(failover)
    return counted


def _drilled(failover: Failover) -> bool:
    return Drill.objects.filter(failover=failover).exists()


def exhausted(job: Job, incident: Incident) -> str:
    """Return the sentence that ends the job when its budget is used up, '' while it is not."""
    if incident.fault_class == FaultClass.HARDWARE:
        return ""
    attempts = spent(job)
    if len(attempts) < job.restart_budget:
        return ""
    told = "; ".join(
        f"failover {each.pk} at {each.created_at:%H:%M:%S}: {each.incident.code or each.incident.fault_class}"
        for each in reversed(attempts)
    )
    return (
        f"The restart budget of {job.restart_budget} is used up without a new complete snapshot. "
        f"Last fault: {incident.summary} Attempts: {told or 'none'}."
    )
