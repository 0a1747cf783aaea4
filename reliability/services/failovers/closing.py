"""What is left of a job when it is over? The one way in which a job ends, whoever or whatever ends it."""

from reliability.domain.snapshots import Tier
from reliability.models import Epoch, Job
from reliability.selectors import core
from reliability.services import clock, dispatch, launch, nodes, orders, snapshots


def end(job: Job, state: str, reason: str) -> None:
    """Close a job. Once it ran, the epoch rises once more, so that whatever still runs of it is refused.

    Its container is removed everywhere, also on standbys that were only made ready, and its nodes are given back.
    """
    job.refresh_from_db()
    now = clock.now()
    if job.epoch > 0:
        Epoch.objects.filter(job=job, number=job.epoch, stopped_at=None).update(stopped_at=now)
        job.epoch += 1
    job.state, job.state_reason, job.ended_at = state, reason, now
    job.save(update_fields=["epoch", "state", "state_reason", "ended_at"])
    orders.withdraw(now, job=job)
    for node in launch.release_everywhere(job):
        # With the container goes its memory tier; the other tiers stay.
        snapshots.lose_local_copies(node, job, (Tier.MEMORY, Tier.PARTNER))
    for slot in core.slots_of(job):
        if slot.node is not None:
            nodes.free(slot.node)
    dispatch.changed("overview", f"job:{job.pk}")
