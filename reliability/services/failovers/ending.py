"""How does a job end before its work is done: by a person, or because another job needs its nodes?"""

from reliability.domain.failover import Event
from reliability.models import Job
from reliability.selectors import core
from reliability.services.failovers.closing import end
from reliability.services.failovers.moves import Outcome, move


def stop(job: Job, *, by: str, reason: str) -> None:
    """Stop a job that is not over: an open recovery of it is cancelled, its ranks end, its containers are removed."""
    standing = core.open_failover(job)
    if standing is not None:
        move(standing, Outcome(Event.CANCELLED, {"reason": reason}, actor=by))
    end(job, Job.State.STOPPED, reason)


__all__ = ["end", "stop"]
