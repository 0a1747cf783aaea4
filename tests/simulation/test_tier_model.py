"""Is the rate of a job right whose copies on storage cannot follow every save? Against copies and drains one by one."""

from dataclasses import replace

import pytest

from reliability.domain.planner import Inputs, exact, first_order
from reliability.domain.planner.levels import drain_over_classes
from reliability.simulation import Level, check_levels

RARE = Inputs(save_stall_s=1, mtbf_s=21600, recovery_s=60, target=0.9, tiers=((0.2, 3600.0),))
OFTEN = Inputs(save_stall_s=5, mtbf_s=10800, recovery_s=60, target=0.8, tiers=((0.3, 2400.0),))
CASES = [(RARE, 918.0, 0.9309), (RARE, 208.0, 0.9397), (OFTEN, 493.0, 0.8750)]


def simulated(inputs: Inputs, period_s: float, failures: int) -> float:
    """Copies in memory, and on storage after every so many saves that its drain takes; drains survive other faults."""
    assert inputs.mtbf_s is not None
    ((share, drain_s),) = inputs.tiers
    every = max(1, -int(-drain_s // period_s))
    memory = Level(extra_stall_s=inputs.save_stall_s, mtbf_s=inputs.mtbf_s / (1 - share), recovery_s=inputs.recovery_s)
    storage = Level(
        extra_stall_s=0, mtbf_s=inputs.mtbf_s / share, recovery_s=inputs.recovery_s, every=every, drain_s=drain_s,
        drain_survives=True,
    )  # fmt: skip
    work_s = period_s - inputs.save_stall_s
    return check_levels([memory, storage], work_s, inputs.downtime_s, failures, 3, 100).ettr


@pytest.mark.parametrize(("inputs", "period_s", "known"), CASES)
def test_the_rate_with_a_slow_tier_is_within_a_few_tenths_of_a_point(
    inputs: Inputs, period_s: float, known: float
) -> None:
    found = simulated(inputs, period_s, 200_000)
    assert found == pytest.approx(known, abs=0.002)
    planned = exact.ettr_at(inputs, period_s)
    assert planned == pytest.approx(found, abs=0.003)
    assert first_order.ettr_at(inputs, period_s) < planned


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "period_s", "known"), CASES)
def test_one_drain_for_all_classes_would_be_further_off(inputs: Inputs, period_s: float, known: float) -> None:
    """The one drain that loses as much, when the period waits for it, gives another rate than tiers that lag behind."""
    ((share, drain_s),) = inputs.tiers
    collapsed = replace(inputs, tiers=(), drain_s=drain_over_classes(inputs.mtbf_s, [(share, drain_s), (1 - share, 0)]))
    found = simulated(inputs, period_s, 2_000_000)
    assert found == pytest.approx(known, abs=0.0006)
    assert abs(exact.ettr_at(inputs, period_s) - found) < abs(exact.ettr_at(collapsed, period_s) - found)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [RARE, OFTEN])
def test_the_planned_period_is_as_good_as_any_that_the_simulation_finds(inputs: Inputs) -> None:
    """Simulated copies are so many whole saves apart, which moves the rate by up to two tenths of a point."""
    period_s = exact.plan(inputs).period_s
    assert period_s is not None
    best = max(simulated(inputs, period_s * ratio, 1_000_000) for ratio in (0.5, 0.7, 1.0, 1.4, 2.0, 4.0))
    assert simulated(inputs, period_s, 1_000_000) > best - 0.003
