"""How does one job live through its failures: stopped, recovering, training, saving, struck again?

Many replicas advance together, one event each at a time: a leg begins with a stop (downtime, in which nothing fails,
then the recovery, in which the next failure may strike) and ends with the failure that cuts it short, or with a
planned stop. The saves that a leg finished are counted from the event list, not one by one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reliability.simulation.laws import Flags, Floats, Law
from reliability.simulation.ledger import Ledger
from reliability.simulation.limits import number, positive, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that saves every `period_s` from start to start; all in seconds.

    A copy counts once its drain has ended. Drains do not overlap: a period shorter than the drain is raised to it.
    """

    period_s: float
    save_stall_s: float
    recovery_s: float
    downtime_s: float = 0.0
    drain_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("save_stall_s", "recovery_s", "downtime_s", "drain_s"):
            number(name, getattr(self, name))
        positive("period_s", self.period_s)
        if self.period_s <= self.save_stall_s:
            hint = f"A period counts from start to start: more than the {self.save_stall_s:g} s of the save itself."
            raise refuse("period_s", "leaves no time to train between saves", hint)

    @property
    def cycle_s(self) -> float:
        """Return the seconds from save to save that are kept up."""
        return max(self.period_s, self.drain_s)

    @property
    def work_s(self) -> float:
        """Return the training between two saves."""
        return self.cycle_s - self.save_stall_s

    def finished(self, running_s: Floats) -> Floats:
        """Return how many saves end within `running_s` of training from a restored copy."""
        return np.floor(running_s / self.cycle_s)

    def durable(self, running_s: Floats) -> Floats:
        """Return how many copies are durable when a failure ends `running_s` of training from a restored copy."""
        return self.finished(np.maximum(running_s - self.drain_s, 0.0))


class Downtimes(Protocol):
    """What decides how long a job is down after a failure."""

    def after(self, stopped_at: Floats, failed: Flags) -> Floats | float:
        """Return the downtime of each replica; its job stopped at that instant, by a failure or as planned."""


@dataclass(frozen=True, slots=True)
class Always:
    """The same downtime after each failure."""

    downtime_s: float

    def after(self, stopped_at: Floats, failed: Flags) -> float:
        """Return it."""
        return self.downtime_s


@dataclass(frozen=True, slots=True)
class Drawn:
    """A downtime by chance, as from a queue."""

    law: Law
    chance: np.random.Generator

    def after(self, stopped_at: Floats, failed: Flags) -> Floats:
        """Return one for each replica."""
        return self.law.draw(self.chance, len(stopped_at))


class PlannedStops:
    """Requests that arrive by chance in calendar time; each is met at the end of the next save, so nothing is lost."""

    def __init__(self, per_s: float, replicas: int, chance: np.random.Generator) -> None:
        self._mean_s, self._chance = 1 / per_s, chance
        self._next = self._gaps(replicas)

    def _gaps(self, size: int) -> Floats:
        return self._chance.standard_exponential(size) * self._mean_s

    def saves_until(self, training_from: Floats, cycle_s: float) -> Floats:
        """Return at which save of a leg the next request is met, when training begins at that instant."""
        return np.maximum(np.ceil((self._next - training_from) / cycle_s), 1.0)

    def met(self, where: Flags) -> None:
        """The request of these replicas was met; the next one arrives."""
        self._next = np.where(where, self._next + self._gaps(len(where)), self._next)


def book(ledger: Ledger, job: Job, down: Floats | float, up: Floats, kept: Floats) -> None:
    """Enter legs of `down` seconds of downtime and `up` seconds of exposed time that keep `kept` saves."""
    restoring = np.minimum(up, job.recovery_s)
    useful, saving = kept * job.work_s, kept * job.save_stall_s
    ledger.downtime += down
    ledger.recovery += restoring
    ledger.useful += useful
    ledger.saving += saving
    ledger.rollback += np.maximum(up - restoring - useful - saving, 0.0)


def run(
    job: Job,
    uptimes: Callable[[], Floats | None],
    downtimes: Downtimes,
    *,
    replicas: int,
    failures: int,
    late: Callable[[], bool],
    stops: PlannedStops | None = None,
) -> Ledger:
    """Advance all replicas until they have seen `failures` together, the uptimes end or it is late.

    `uptimes` gives the exposed seconds from the end of each replica's downtime to its next failure, None at the end.
    """
    ledger, failed = Ledger(replicas), np.ones(replicas, dtype=bool)
    while ledger.failures < failures and (up := uptimes()) is not None:
        began = ledger.elapsed
        down = downtimes.after(began, failed)
        kept = job.durable(np.maximum(up - job.recovery_s, 0.0))
        if stops is not None:
            saves = stops.saves_until(began + down + job.recovery_s, job.cycle_s)
            until = job.recovery_s + saves * job.cycle_s
            planned = until <= up
            up, kept = np.where(planned, until, up), np.where(planned, saves, kept)
            stops.met(planned)
            failed = ~planned
        book(ledger, job, down, up, kept)
        ledger.failures += int(failed.sum())
        if late():
            break
    return ledger
