"""How does a job end: by a person, by itself, or because another job needs its nodes?"""

from reliability.domain.failover import Event
from reliability.domain.snapshots import Tier
from reliability.models import Job
from reliability.selectors import core
from reliability.services import clock, dispatch, launch, nodes, orders, snapshots
from reliability.services.failovers.moves import Outcome, move


def stop(job: Job, *, by: str, reason: str) -> None:
    """Stop a job that is not over: an open recovery of it is cancelled, its ranks end, its containers are removed."""
    standing = core.open_failover(job)
    if standing is not None:
        move(standing, Outcome(Event.CANCELLED, {"reason": reason}, actor=by))
    end(job, Job.State.STOPPED, reason)


def end(job: Job, state: str, reason: str) -> None:
    """Close a job. Once it ran, the epoch rises once more, so that whatever still runs of it is refused."""
    job.refresh_from_db()
    now = clock.now()
    if job.epoch > 0:
        job.epoch += 1
    job.state, job.state_reason, job.ended_at = state, reason, now
    job.save(update_fields=["epoch", "state", "state_reason", "ended_at"])
    orders.withdraw(now, job=job)
    for node in launch.release_everywhere(job):
        # With the container goes its memory tier; the other tiers stay.
        snapshots.lose_local_copies(node, job, (Tier.MEMORY,))
    for slot in core.slots_of(job):
        if slot.node is not None:
            nodes.free(slot.node)
    dispatch.changed("overview", f"job:{job.pk}")
