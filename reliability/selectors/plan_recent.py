"""What was measured of a job a moment ago, for those who ask at every key.

What was measured over hours is not measured anew each time: nobody can tell two seconds of hours.
"""

from collections.abc import Mapping
from datetime import datetime

from reliability.models import Job
from reliability.selectors import plan_inputs
from reliability.selectors.plan_inputs import Known

FRESH_S = 2.0
MOST_KEPT = 100
_recent: dict[tuple[object, ...], tuple[datetime, Mapping[str, Known]]] = {}


def lately(job: Job, *, now: datetime) -> Mapping[str, Known]:
    """Return what is measured of the job, at most FRESH_S old, and of this attempt at this period."""
    found = _recent.get(_key(job))
    if found is not None and 0 <= (now - found[0]).total_seconds() < FRESH_S:
        return found[1]
    return anew(job, now=now)


def anew(job: Job, *, now: datetime) -> Mapping[str, Known]:
    """Measure, and keep it for who asks next."""
    measured = plan_inputs.measured(job, now=now)
    if len(_recent) >= MOST_KEPT:
        _recent.clear()
    _recent[_key(job)] = (now, measured)
    return measured


def _key(job: Job) -> tuple[object, ...]:
    return job.pk, job.created_at, job.state, job.epoch, job.every_steps
