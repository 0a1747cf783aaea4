"""Which batch is offered to be left out on all ranks, and what exactly is decided on?

An offer binds to a digest of the job, the step, the incident and the attempt, as a request for a failover does.
"""

import hashlib
import json

from reliability.models import AttemptEnd, BatchSkip, Incident, Job
from reliability.services import clock, dispatch


def offer(job: Job, incident: Incident, end: AttemptEnd) -> BatchSkip | None:
    """Offer to leave out the batch of the step at which a job ends again and again; None where that step is unknown.

    A batch that a person decided on before is not offered again.
    """
    done = end.last_step if end.last_step is not None else end.reached
    if done is None:
        return None
    step = done + 1
    values = {
        "incident": incident,
        "reason": f"It ends after step {done} again and again ({end.code}): its next batch is suspected.",
        "digest": digest(job, incident, step),
        "offered_at": clock.now(),
        "state": BatchSkip.State.OFFERED,
    }
    made, created = BatchSkip.objects.get_or_create(job=job, step=step, defaults=values)
    if not created and made.state in (BatchSkip.State.OFFERED, BatchSkip.State.CLOSED):
        BatchSkip.objects.filter(pk=made.pk).update(**values)
        made.refresh_from_db()
    dispatch.changed(f"job:{job.pk}")
    return made if made.state == BatchSkip.State.OFFERED else None


def digest(job: Job, incident: Incident, step: int) -> str:
    """Return what a decision binds to."""
    decides = {
        "job": job.pk,
        "step": step,
        "incident": incident.pk,
        "epoch": job.epoch,
        "ranks": job.world_size,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def close(job: Job) -> None:
    """Withdraw what was offered: the job is over, or goes on without it."""
    BatchSkip.objects.filter(job=job, state=BatchSkip.State.OFFERED).update(state=BatchSkip.State.CLOSED)
