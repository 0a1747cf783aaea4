"""A period in steps: the better neighbour of the optimum, inside the numbers that keep the target."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.steps import StepPlan, step_plan
from reliability.errors import InvalidInput
from tests.domain.planner.cases import sizes, wide

BASE = Inputs(save_stall_s=30, mtbf_s=36000, recovery_s=600, target=0.93)


def steps_of(inputs: Inputs, step_s: float) -> StepPlan:
    found = step_plan(inputs, exact.plan(inputs), step_s)
    assert found is not None
    return found


def rate(inputs: Inputs, every: int, step_s: float) -> float:
    return exact.ettr_at(inputs, every * step_s + inputs.save_stall_s)


@given(wide(drains=False), sizes(-6, 2))
def test_no_other_number_of_steps_is_better(inputs: Inputs, share: float) -> None:
    step_s = max(share * (exact.plan(inputs).work_s or 1.0), 1e-9)
    steps = steps_of(inputs, step_s)
    assert steps.ettr == rate(inputs, steps.every_steps, step_s)
    for other in {steps.every_steps + 1, max(1, steps.every_steps - 1), 2 * steps.every_steps}:
        assert rate(inputs, other, step_s) <= steps.ettr + 1e-12


@given(wide(), st.floats(1e-3, 0.3))
def test_the_steps_keep_the_target_and_the_next_ones_outside_do_not(inputs: Inputs, share: float) -> None:
    plan = exact.plan(inputs)
    if plan.interval_s is None or not plan.work_s:
        return
    step_s = share * plan.work_s
    steps = steps_of(inputs, step_s)
    if steps.interval is None:
        return
    low, high = steps.interval
    assert high is not None
    assert low <= steps.every_steps <= high
    for every in (low, high):
        assert rate(inputs, every, step_s) >= inputs.target * (1 - 1e-9)
    assert rate(inputs, high + 1, step_s) < inputs.target
    if low > 1:
        before = (low - 1) * step_s + inputs.save_stall_s
        assert before < inputs.drain_s or exact.ettr_at(inputs, before) < inputs.target


def test_free_saves_mean_a_save_at_every_step() -> None:
    assert steps_of(replace(BASE, save_stall_s=0.0), 2.0).every_steps == 1


def test_free_saves_wait_for_the_drain() -> None:
    steps = steps_of(replace(BASE, save_stall_s=0.0, drain_s=61.0), 2.0)
    assert (steps.every_steps, steps.period_s) == (31, 62.0)


def test_a_drain_of_a_whole_number_of_steps_takes_that_many() -> None:
    assert steps_of(replace(BASE, save_stall_s=0.0, drain_s=0.3), 0.1).every_steps == 3


def test_a_step_longer_than_the_best_period_is_saved_after_each_time() -> None:
    assert steps_of(BASE, 5000.0).every_steps == 1


def test_an_interval_between_two_steps_holds_no_number_of_steps() -> None:
    tight = replace(BASE, target=exact.plan(BASE).ettr_max - 1e-9)
    steps = steps_of(tight, 100.0)
    assert steps.interval is None
    assert steps.every_steps in (14, 15)


def test_the_optimum_is_drawn_into_the_interval() -> None:
    """13 steps are nearer to the best period, yet the target holds at the other neighbour only."""
    plan = exact.plan(BASE)
    narrow = replace(plan, interval_s=(1550.0, 1700.0))
    steps = step_plan(BASE, narrow, 112.0)
    assert steps is not None
    assert steps.interval == (14, 14)
    assert steps.every_steps == 14


def test_without_faults_the_least_number_that_keeps_the_target_is_taken() -> None:
    calm = replace(BASE, mtbf_s=None)
    steps = steps_of(calm, 10.0)
    assert steps.interval == (steps.every_steps, None)
    assert rate(calm, steps.every_steps - 1, 10.0) < calm.target <= rate(calm, steps.every_steps, 10.0)


def test_without_faults_and_out_of_reach_there_is_no_number_of_steps() -> None:
    calm = replace(BASE, mtbf_s=None, cluster_availability=0.9)
    assert step_plan(calm, exact.plan(calm), 10.0) is None


@pytest.mark.parametrize("step_s", [0, -1, math.nan, math.inf, "2", None])
def test_a_step_time_that_is_none_is_refused(step_s: Any) -> None:
    with pytest.raises(InvalidInput, match="step_s"):
        step_plan(BASE, exact.plan(BASE), step_s)
