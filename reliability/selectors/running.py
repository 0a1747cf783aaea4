"""When did a job really train: the time in which a fault would have struck it?

Recoveries, waits for a person or a node and stops are no part of it, so it is never the calendar.
"""

from collections.abc import Iterable
from datetime import datetime

from reliability.domain.failover import State
from reliability.models import Epoch, Failover, Job

Interval = tuple[datetime, datetime]


def intervals(job: Job, *, since: datetime, until: datetime) -> list[Interval]:
    """Return the stretches of training between two instants, the oldest first. Two queries at most.

    A stretch begins when every rank of an attempt has made its first step, and ends with the first sign of the fault
    that ended it, or with the stop.
    """
    rows = list(Epoch.objects.filter(job=job, running_at__lt=until).exclude(stopped_at__lte=since).order_by("number"))
    following = [row.started_at for row in rows[1:]] + [None] * bool(rows)
    found = []
    for row, next_at in zip(rows, following, strict=True):
        end = row.stopped_at or next_at or _end_of_newest(job, row, until)
        began, ended = max(row.running_at or end, since), min(end, until)
        if began < ended:
            found.append((began, ended))
    return found


def seconds(stretches: Iterable[Interval]) -> float:
    """Return how long these stretches are together."""
    return sum((end - began).total_seconds() for began, end in stretches)


def _end_of_newest(job: Job, epoch: Epoch, until: datetime) -> datetime:
    """An attempt whose recovery is not approved yet, or was refused, stands still since the fault."""
    if job.state not in (Job.State.WAITING, Job.State.RECOVERING):
        return until
    faults = Failover.objects.filter(job=job, from_epoch=epoch.number).exclude(state=State.SUPERSEDED)
    return faults.order_by("-pk").values_list("fault_at", flat=True).first() or until
