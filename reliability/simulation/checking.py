"""Does a plan hold in a simulated run? The one question of the planner's page and command."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from reliability.simulation.job import Always, Downtimes, Job, PlannedStops, run
from reliability.simulation.laws import Exponential, Law
from reliability.simulation.ledger import Check, Ledger
from reliability.simulation.limits import Effort, number, positive, refuse
from reliability.simulation.standbys import Pool, Standbys


class JobInputs(Protocol):
    """What is read of a plan's inputs; times in seconds, rates per second."""

    @property
    def save_stall_s(self) -> float: ...
    @property
    def mtbf_s(self) -> float | None: ...
    @property
    def recovery_s(self) -> float: ...
    @property
    def downtime_s(self) -> float: ...
    @property
    def drain_s(self) -> float: ...
    @property
    def cluster_availability(self) -> float: ...
    @property
    def planned_stops_per_s(self) -> float: ...


def check(
    inputs: JobInputs,
    period_s: float | None,
    failures: int = 100_000,
    seed: int = 1,
    limit_s: float = 10.0,
    *,
    law: Law | None = None,
    standbys: Standbys | None = None,
) -> Check:
    """Simulate a job that saves every `period_s` (start to start); the same seed gives the same answer.

    `law`: of the exposed time from a recovery to the next failure, with `inputs.mtbf_s` as its mean when left out
    (exponential). `standbys`: the downtime is then `inputs.downtime_s` when a standby takes the place of a lost node,
    and the wait for a repair when none is left. Without faults the answer is exact, with a standard error of 0.
    A period shorter than the drain is raised to it, since drains do not overlap.
    Raises InvalidInput, naming the argument or the input, for values that cannot be simulated.
    """
    began = time.monotonic()
    effort = Effort(failures, seed, limit_s)
    job = _job(inputs, period_s)
    law, stops_per_s, availability = _surroundings(inputs, law)
    if law is None:
        return _without_faults(job, stops_per_s, availability, seed, time.monotonic() - began)
    chance, late = np.random.default_rng(seed), effort.clock()
    replicas = effort.replicas() if standbys is None else effort.replicas(each=1000, most=400)
    downtimes: Downtimes = Always(job.downtime_s)
    if standbys is not None:
        downtimes = _settled(job, law, Pool(standbys, job.downtime_s, replicas, chance), replicas, chance, late)
        if late():
            raise effort.too_short()
    stops = PlannedStops(stops_per_s, replicas, chance) if stops_per_s else None
    ledger = run(
        job,
        lambda: law.draw(chance, replicas),
        downtimes,
        replicas=replicas,
        failures=failures,
        late=late,
        stops=stops,
    )
    ledger.dilute(availability)
    grain_s = job.work_s if ledger.failures else job.cycle_s + job.recovery_s + job.downtime_s
    return ledger.close(grain_s=grain_s, period_s=job.cycle_s, seed=seed, seconds=time.monotonic() - began)


def _job(inputs: JobInputs, period_s: float | None) -> Job:
    if period_s is None:
        hint = "Without faults the longer the better: give the low end of the interval, or the present period."
        raise refuse("period_s", "there is no period to simulate", hint)
    return Job(
        period_s=positive("period_s", period_s),
        save_stall_s=inputs.save_stall_s,
        recovery_s=inputs.recovery_s,
        downtime_s=inputs.downtime_s,
        drain_s=inputs.drain_s,
    )


def _surroundings(inputs: JobInputs, law: Law | None) -> tuple[Law | None, float, float]:
    stops_per_s = number("planned_stops_per_s", inputs.planned_stops_per_s)
    availability = positive("cluster_availability", inputs.cluster_availability, most=1.0)
    if availability < 1e-100:
        raise refuse("cluster_availability", "leaves no time to train")
    if stops_per_s and law is not None and not isinstance(law, Exponential):
        hint = "Leave planned stops out, or the law."
        raise refuse("planned_stops_per_s", "a planned stop would restart the clock of any other law", hint)
    if law is None and inputs.mtbf_s is not None:
        law = Exponential(positive("mtbf_s", inputs.mtbf_s))
    return law, stops_per_s, availability


def _settled(
    job: Job, law: Law, pool: Pool, replicas: int, chance: np.random.Generator, late: Callable[[], bool]
) -> Pool:
    """Return the pool after so many failures that it no longer remembers that all standbys were there."""
    before = run(
        job,
        lambda: law.draw(chance, replicas),
        pool,
        replicas=replicas,
        failures=replicas * pool.settling(law.mean_s),
        late=late,
    )
    pool.begin_again(before.elapsed)
    return pool


def _without_faults(job: Job, stops_per_s: float, availability: float, seed: int, seconds: float) -> Check:
    """Nothing is left to chance but when planned stops are asked for, and only their number counts."""
    ledger = Ledger(1)
    stopped = stops_per_s * (job.downtime_s + job.recovery_s)
    if stopped >= 1:
        raise refuse("planned_stops_per_s", "planned stops take all the time")
    cycles = (1 - stopped) / job.cycle_s
    ledger.downtime += stops_per_s * job.downtime_s
    ledger.recovery += stops_per_s * job.recovery_s
    ledger.useful += cycles * job.work_s
    ledger.saving += cycles * job.save_stall_s
    ledger.dilute(availability)
    found = ledger.close(grain_s=0.0, period_s=job.cycle_s, seed=seed, seconds=seconds)
    return replace(found, se=0.0, simulated_s=0.0)
