"""What does one run of a given length bring, rather than the long run: a job with a fixed amount of work, one week?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliability.simulation.job import Always, Downtimes, Drawn, Job
from reliability.simulation.laws import Floats, Law
from reliability.simulation.limits import Effort, positive, refuse, whole

MOST_RUNS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The effective training rate of each of many runs, and the failures of all."""

    ettr: Floats
    failures: int

    @property
    def mean(self) -> float:
        """Return the mean of the rates."""
        return float(self.ettr.mean())

    @property
    def sd(self) -> float:
        """Return the standard deviation of the rate from run to run."""
        return float(self.ettr.std(ddof=1))

    @property
    def se(self) -> float:
        """Return the standard error of the mean."""
        return self.sd / float(np.sqrt(len(self.ettr)))


def finite_jobs(job: Job, law: Law, saves: int, *, queue: Law, runs: int = 2000, seed: int = 1) -> Runs:
    """Run jobs that end with their save number `saves`; a queue comes before the start and after each failure.

    The rate is the training done over the time since the job was first submitted.
    """
    whole("saves", saves, low=1, high=10_000_000)
    whole("runs", runs, low=20, high=MOST_RUNS)
    effort, chance = Effort(100, seed, 60.0), np.random.default_rng(seed)
    late, downtimes = effort.clock(), Drawn(queue, chance)
    left, elapsed, failures = np.full(runs, float(saves)), np.zeros(runs), 0
    while (left > 0).any() and not late():
        going = left > 0
        up = law.draw(chance, runs)
        to_the_end = job.recovery_s + left * job.cycle_s
        ends = to_the_end <= up
        kept = job.durable(np.maximum(up - job.recovery_s, 0.0))
        elapsed += np.where(going, downtimes.after(elapsed, going) + np.where(ends, to_the_end, up), 0.0)
        failures += int((going & ~ends).sum())
        left = np.where(going, np.where(ends, 0.0, left - kept), left)
    return Runs(ettr=(saves - left) * job.work_s / elapsed, failures=failures)


def windows(job: Job, law: Law, window_s: float, *, runs: int = 2000, seed: int = 1) -> Runs:
    """Watch jobs for a window of calendar time that begins long after their start."""
    positive("window_s", window_s)
    whole("runs", runs, low=20, high=MOST_RUNS)
    chance = np.random.default_rng(seed)
    opens = 20 * (law.mean_s + job.downtime_s) * (1 + chance.random(runs))
    late = Effort(100, seed, 60.0).clock()
    first = _Watch(opens), _Watch(opens + window_s)
    failures = _until_seen(job, law, Always(job.downtime_s), first, chance, late)
    return Runs(ettr=(first[1].seen - first[0].seen) / window_s, failures=failures)


class _Watch:
    """Notes how much each replica has kept at an instant of its calendar."""

    def __init__(self, instant: Floats) -> None:
        self.instant, self.seen = instant, np.full(len(instant), np.nan)

    def look(self, job: Job, began: Floats, ended: Floats, kept_s: Floats) -> None:
        """Note it where the instant lies in the leg that began and ended then."""
        running = np.clip(self.instant - began - job.downtime_s - job.recovery_s, 0.0, None)
        now = kept_s + job.durable(running) * job.work_s
        self.seen = np.where((began <= self.instant) & (self.instant < ended), now, self.seen)


def _until_seen(
    job: Job,
    law: Law,
    downtimes: Downtimes,
    watches: tuple[_Watch, _Watch],
    chance: np.random.Generator,
    late: Callable[[], bool],
) -> int:
    runs, failures = len(watches[0].instant), 0
    now, kept_s, failed = np.zeros(runs), np.zeros(runs), np.ones(runs, dtype=bool)
    while np.isnan(watches[1].seen).any():
        if late():
            raise refuse("window_s", "takes too long to simulate")
        up = law.draw(chance, runs)
        ended = now + downtimes.after(now, failed) + up
        for watch in watches:
            watch.look(job, now, ended, kept_s)
        failures += int(((ended > watches[0].instant) & (ended < watches[1].instant)).sum())
        kept_s = kept_s + job.durable(np.maximum(up - job.recovery_s, 0.0)) * job.work_s
        now = ended
    return failures
