"""How many failures does the planner's simulator get through in a second, beside a plain loop over events?"""

import random
import time
from collections.abc import Callable, Iterator

import numpy as np

from bench.figures import Figure
from reliability.domain.planner import Inputs
from reliability.simulation import Exponential, Job, Level, Standbys, Weibull, check, check_levels, gang_job, replay
from tests.simulation.machine import Machine

RUNS = 5
FAILURES = 1_000_000
PERIOD_S = 1800.0
INPUTS = Inputs(save_stall_s=60, mtbf_s=10800, recovery_s=300, downtime_s=120, drain_s=200, target=0.8)
SHAPE = Job(period_s=PERIOD_S, save_stall_s=60, recovery_s=300, downtime_s=120, drain_s=200)
LEVELS = (
    Level(extra_stall_s=4, mtbf_s=7200, recovery_s=60),
    Level(extra_stall_s=60, mtbf_s=36000, recovery_s=600, every=9),
)


def plain(failures: int) -> int:
    """Simulate the same job event by event with the tests' state machine; returns the failures."""
    chance = random.Random(1)  # noqa: S311 - a simulation, not a secret
    machine = Machine(PERIOD_S, 60, 300, 120, 200)
    machine.live(chance.expovariate(1 / 10800) for _ in range(failures))
    return machine.failures


def per_second(name: str, simulate: Callable[[int], int], *, note: str = "", runs: int = RUNS) -> Figure:
    """Time several runs; `simulate` takes a seed and returns how many failures it went through."""
    rates = []
    for seed in range(runs):
        began = time.perf_counter()
        failures = simulate(seed)
        rates.append(failures / (time.perf_counter() - began))
    return Figure(name=name, samples=rates, unit="1/s", note=note)


def measure() -> Iterator[Figure]:
    """Return the figures."""
    gaps = Exponential(10800).draw(np.random.default_rng(1), FAILURES)
    seconds = [check(INPUTS, PERIOD_S, FAILURES, seed=seed).seconds for seed in range(RUNS)]
    yield Figure(name="one job, a million failures", samples=seconds, note="at most 10 s are wanted")
    yield per_second("one job, exponential", lambda seed: check(INPUTS, PERIOD_S, FAILURES, seed).failures)
    yield per_second(
        "one job, Weibull", lambda seed: check(INPUTS, PERIOD_S, FAILURES, seed, law=Weibull(0.7, 10800)).failures
    )
    yield per_second("the same job, a plain loop", lambda seed: plain(100_000), note="the tests' state machine")
    yield per_second("two levels", lambda seed: check_levels(LEVELS, 236, 30, 300_000, seed).failures)
    yield per_second(
        "12 standbys, gang job",
        lambda seed: gang_job(1e-4, Standbys(count=12, repair=Exponential(6.7e4)), 300_000, seed).failures,
    )
    yield per_second("replay of a record", lambda seed: replay(gaps, SHAPE).failures)
