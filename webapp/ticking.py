"""When is a periodic task due, on a machine whose clock is set? By the clock that nobody sets.

Celery's own schedule compares times of the wall clock: set back by an hour it sends nothing for an hour.
"""

import time
from typing import Any

from celery.beat import PersistentScheduler, ScheduleEntry
from celery.schedules import schedstate, schedule


class Every(schedule):
    """Due every `run_every` seconds; at once after a start, whenever it was due last."""

    _ran_at: float | None = None

    def is_due(self, last_run_at: Any) -> schedstate:
        """Return whether it is due, and in how many seconds to ask again."""
        now = time.monotonic()
        if self._ran_at is not None and (left_s := self._ran_at + self.seconds - now) > 0:
            return schedstate(is_due=False, next=left_s)
        self._ran_at = now
        return schedstate(is_due=True, next=self.seconds)

    def __reduce__(self) -> tuple[type["Every"], tuple[float]]:
        """A schedule that is kept over a start knows nothing of the clock of the life before."""
        return type(self), (self.seconds,)


class SteadyScheduler(PersistentScheduler):
    """Celery's scheduler, its queue of what comes next in seconds of the monotonic clock."""

    def _when(self, entry: ScheduleEntry, next_time_to_run: float, **_how: Any) -> float:
        return time.monotonic() + float(self.adjust(next_time_to_run) or 0.0)  # type: ignore[arg-type]
