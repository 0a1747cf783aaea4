"""Deciding on a batch that is to be left out: it binds to what was shown, and happens once.

An approved batch is left out by every attempt from then on: its number travels in the start order of all nodes.
"""

from django.db import transaction

from reliability.errors import IllegalTransition, StaleProposal
from reliability.models import BatchSkip, Failover, Job
from reliability.services import clock, dispatch, failovers
from reliability.services.failovers import skipping


def approve(skip: BatchSkip, *, by: failovers.Person, digest: str, note: str = "") -> Failover | None:
    """Leave the batch out on all ranks, and start a job that waits again; returns that recovery.

    Raises PermissionDenied, IllegalTransition when it was decided already, StaleProposal when the job has gone on.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=skip.job_id)
        skip = _decide(skip, BatchSkip.State.APPROVED, by=by, digest=digest, note=note)
        if job.state != Job.State.WAITING:
            return None  # over: the batch is left out when it is started again
        return failovers.go_on(job, skip.incident, by=skip.decided_by)


def reject(skip: BatchSkip, *, by: failovers.Person, digest: str, note: str = "") -> None:
    """Keep the batch. Raises as `approve` does."""
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=skip.job_id)
        _decide(skip, BatchSkip.State.REJECTED, by=by, digest=digest, note=note)


def _decide(skip: BatchSkip, state: str, *, by: failovers.Person, digest: str, note: str) -> BatchSkip:
    actor = failovers.decider(by)
    skip = BatchSkip.objects.select_for_update().select_related("job", "incident").get(pk=skip.pk)
    if skip.state != BatchSkip.State.OFFERED:
        whom = f" by {skip.decided_by}" if skip.decided_by else ""
        raise IllegalTransition(f"The batch of step {skip.step} is {skip.get_state_display()}{whom}.")
    now_binds = {skip.digest, skipping.digest(skip.job, skip.incident, skip.step)}
    over = skip.job.state in Job.TERMINAL
    if digest != skip.digest or (len(now_binds) > 1 and not over):
        raise StaleProposal("The job has gone on since this was shown: look at it as it stands now.")
    skip.state, skip.decided_by, skip.decided_at, skip.note = state, actor, clock.now(), note
    skip.save(update_fields=["state", "decided_by", "decided_at", "note"])
    dispatch.changed(f"job:{skip.job_id}", "overview")
    return skip
