"""How long does one plan take: the exact model with its interval and limits, and what stands beside it?"""

import math
import statistics
import time
import timeit
from collections.abc import Callable, Iterator

from bench.figures import Figure
from reliability.domain.planner import Inputs, exact, first_order
from reliability.domain.planner.levers import cheapest_pair

RUNS = 15
CALLS = 500


def plain_loop() -> float:
    """Do what any plan consists of, 100 exponentials and logarithms, so that a slow machine shows."""
    total = 0.0
    for index in range(100):
        total += math.exp(-index) + math.log1p(index)
    return total


def inputs(**changed: float) -> Inputs:
    """Return a job of a thousand nodes, where saves and recoveries take minutes."""
    return Inputs(save_stall_s=30.0, mtbf_s=28440.0, recovery_s=300.0, downtime_s=120.0, target=0.93, **changed)


def microseconds(call: Callable[[], object]) -> list[float]:
    """Return the processor time of one call, several times over: what else the machine does then counts little."""
    timed = timeit.repeat(call, number=CALLS, repeat=RUNS, timer=time.process_time)
    return [1e6 * seconds / CALLS for seconds in timed]


def measure() -> Iterator[Figure]:
    """Return the figures; the ratio to the loop holds on a busy machine as well."""
    loop = microseconds(plain_loop)
    yield Figure(name="100 x exp and log1p in a loop", samples=loop, unit="us")
    made = inputs()
    plans: dict[str, Callable[[], object]] = {
        "exact plan: inputs, interval, limits": lambda: exact.plan(inputs()),
        "the same with a drain that binds": lambda: exact.plan(inputs(drain_s=3600.0)),
        "the same with planned stops": lambda: exact.plan(inputs(planned_stops_per_s=2e-6)),
        "first-order plan": lambda: first_order.plan(inputs()),
        "exact rate at one period": lambda: exact.ettr_at(made, 1300.0),
        "cheapest pair out of reach": lambda: cheapest_pair(inputs(drain_s=900.0)),
    }
    for name, call in plans.items():
        samples = microseconds(call)
        ratio = min(samples) / min(loop)
        yield Figure(name=name, samples=samples, unit="us", note=f"{ratio:.2f} x the loop")
    limit = statistics.median(microseconds(plans["exact plan: inputs, interval, limits"]))
    yield Figure(name="exact plan against its limit of 50 us", samples=[limit / 50], unit="x")
