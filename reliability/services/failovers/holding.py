"""When does a job stop being tried, and wait for a person: nothing helps, or trying again leads to the same end?"""

from reliability.domain.budget import Decision
from reliability.domain.faults import Action, FaultClass
from reliability.models import AttemptEnd, Incident, Job
from reliability.selectors import core
from reliability.services import clock, dispatch, incident_log
from reliability.services.failovers import budget, closing, endings, fitness, skipping


def hold(job: Job, incident: Incident, *, same_step: bool) -> None:
    """Have a job wait for a person; one that cannot be started at all fails at once, with its attempts.

    `same_step`: it ended at the same step on other nodes before, so that its batch may be left out.
    """
    impossible = budget.start_error(job, incident)
    if impossible:
        Incident.objects.filter(pk=incident.pk).update(closed_at=clock.now(), close_reason=impossible)
        closing.end(job, Job.State.FAILED, impossible)
        return
    if core.any_failed(job):
        end = endings.of_incident(job, incident, kind=fitness.kind_for(incident, job))
        if same_step:
            skipping.offer(job, incident, end)
    _wait(job, incident.summary)


def no_progress(job: Job, incident: Incident, end: AttemptEnd, decision: Decision) -> None:
    """Stop trying: the same end came again. A person looks at the batch, the program or the snapshots.

    The timeline says so every time, also when something found later had called for another try.
    """
    before = f"{incident.action} ({incident.fault_class})".replace("_", " ")
    incident.fault_class, incident.action = FaultClass.APPLICATION, Action.HOLD
    incident.reasons = [decision.reason, *incident.reasons]
    incident.save(update_fields=["fault_class", "action", "reasons"])
    told = f"From {before} to hold ({FaultClass.APPLICATION}): trying again leads to the same end, a person is asked."
    incident_log.write(incident, incident_log.Kind.RAISED, told)
    skipping.offer(job, incident, end)
    _wait(job, decision.reason)


def _wait(job: Job, reason: str) -> None:
    Job.objects.filter(pk=job.pk).update(state=Job.State.WAITING, state_reason=reason)
    dispatch.changed("overview", f"job:{job.pk}")
