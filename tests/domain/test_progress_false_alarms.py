"""Days of ordinary training, as the client times it: not one hang, and a real one is found at the stated limit.

`STEPKEEPER_DAYS=60` simulates so many days of each kind of job instead of one tenth of a day.
"""

import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from reliability.domain.progress import Pace, Rule, SpeedRule, judge_speed, step_limit
from reliability.trainer.watching import StepTimes

DAYS = float(os.environ.get("STEPKEEPER_DAYS", "0.1"))
DAY_S = 86_400.0
RULE = Rule()

Chance = random.Random


@dataclass(frozen=True)
class Kind:
    """A kind of job: median step in seconds, and what it does beside."""

    step_s: float
    compile_s: float
    extra: Callable[[Chance, int], float]


def jitter(chance: Chance, step: int) -> float:
    return 0.0


def heavy_tails(chance: Chance, step: int) -> float:
    """One step in five hundred waits for a store or a neighbour: most for moments, some for half a minute (Pareto)."""
    return min(0.2 * chance.paretovariate(1.2), 25.0) if chance.random() < 0.002 else 0.0


def pauses(chance: Chance, step: int) -> float:
    """A garbage collection of some seconds each 500 steps, and a new pass through the data each 5000."""
    return (chance.uniform(2, 6) if step % 500 == 0 else 0.0) + (chance.uniform(10, 24) if step % 5000 == 0 else 0.0)


def all_of_it(chance: Chance, step: int) -> float:
    return heavy_tails(chance, step) + pauses(chance, step)


log = logging.getLogger(__name__)
KINDS = {
    "quick steps": Kind(0.1, 20.0, jitter),
    "quick steps with heavy tails": Kind(0.1, 40.0, heavy_tails),
    "quick steps with pauses": Kind(0.25, 60.0, pauses),
    "steps of two seconds with everything": Kind(2.0, 100.0, all_of_it),
    "steps of half a minute": Kind(30.0, 110.0, all_of_it),
    "steps of two minutes": Kind(105.0, 115.0, all_of_it),
}


def steps_of(kind: Kind, chance: Chance, seconds: float) -> Iterator[float]:
    """Yield the durations of steps, the warm-up first; announced evaluations and saves are no part of them."""
    passed, step = 0.0, 0
    while passed < seconds:
        step += 1
        warm_up = kind.compile_s if step == 1 else kind.compile_s / 4 if step in (2, 4) else 0.0
        took = kind.step_s * chance.lognormvariate(0.0, 0.12) + warm_up + kind.extra(chance, step)
        passed += took
        yield took


def pace_of(times: StepTimes) -> Pace | None:
    times.refresh()
    if times.median_s != times.median_s:
        return None
    return Pace(median_s=times.median_s, mad_s=times.mad_s, longest_s=times.longest_s, timed=times.timed)


@pytest.mark.parametrize("name", KINDS)
def test_days_of_ordinary_steps_have_no_hang(name: str) -> None:
    kind, chance, times = KINDS[name], random.Random(name), StepTimes()
    longest, steps = 0.0, 0
    for took in steps_of(kind, chance, DAYS * DAY_S):
        if took >= RULE.floor_s and steps:  # no limit is below; the first step has the limit of a start
            limit = step_limit(pace_of(times), RULE)
            assert took < limit.seconds, f"step {steps} took {took:.1f} s; limit {limit}"
            longest = max(longest, took / limit.seconds)
        times.add(took)
        steps += 1
    log.info("%s: %d steps in %g days, the longest took %.0f %% of its limit", name, steps, DAYS, 100 * longest)


@pytest.mark.parametrize(
    ("name", "within_s"),
    [("quick steps", 30), ("steps of two seconds with everything", 60), ("steps of two minutes", 600)],
)
def test_after_ordinary_hours_a_hang_is_still_found_soon(name: str, within_s: float) -> None:
    kind, chance, times = KINDS[name], random.Random(name), StepTimes()
    for took in steps_of(kind, chance, 2 * 3600.0):
        times.add(took)
    assert step_limit(pace_of(times), RULE).seconds <= within_s


@pytest.mark.parametrize("name", KINDS)
def test_days_of_ordinary_steps_have_no_drop_of_speed(name: str) -> None:
    kind, chance, times = KINDS[name], random.Random(name), StepTimes()
    windows: list[float] = []
    passed, since = 0.0, 0
    for took in steps_of(kind, chance, DAYS * DAY_S):
        times.add(took)
        passed, since = passed + took, since + 1
        if passed >= 15.0 and since >= 16 and times.timed >= 10:
            passed, since = 0.0, 0
            times.refresh()
            windows = [*windows[-239:], times.median_s]
            assert judge_speed(windows, SpeedRule()) is None
