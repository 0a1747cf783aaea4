"""The first-order planner: vectors, limits, and what must hold for any input."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reliability.domain.planner import (
    FirstOrderInputs,
    curve,
    first_order,
    rate_at,
    steps,
    steps_interval,
)
from reliability.errors import InvalidInput

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("planner_vectors.json").read_text())
PLANS = {plan["name"]: plan for plan in VECTORS["plans"]}
TOLERANCE = VECTORS["tolerance"]


def inputs_of(plan: dict[str, Any]) -> FirstOrderInputs:
    names = ("save_stall_s", "mtbf_s", "recovery_s", "target")
    return FirstOrderInputs(**{name: plan[name] for name in names})


def near(value: float) -> Any:
    return pytest.approx(value, rel=TOLERANCE)


inputs = st.builds(
    FirstOrderInputs,
    save_stall_s=st.one_of(st.just(0.0), st.floats(1e-3, 1e4)),
    mtbf_s=st.one_of(st.none(), st.floats(10, 1e9)),
    recovery_s=st.floats(0, 1e4),
    downtime_s=st.floats(0, 1e4),
    drain_s=st.floats(0, 1e4),
    target=st.floats(0.01, 0.999),
)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_agrees_with_the_vector(name: str) -> None:
    expected = PLANS[name]
    plan = first_order(inputs_of(expected))
    assert plan.feasible is expected["feasible"]
    assert plan.best_rate == near(expected["best_rate"])
    if expected["optimum_s"] is None:
        assert plan.optimum_s is None
    else:
        assert plan.optimum_s == near(expected["optimum_s"])
    low, high = expected["interval_s"] or (None, None)
    assert plan.low_s == (None if low is None else near(low))
    assert plan.high_s == (None if high is None else near(high))


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if "levers" in plan])
def test_the_levers_agree_with_the_vector(name: str) -> None:
    plan, levers = first_order(inputs_of(PLANS[name])), PLANS[name]["levers"]
    for field in ("save_stall_s", "recovery_s"):
        assert getattr(plan, field) == (None if levers[field] is None else near(levers[field]))
    assert plan.mtbf_s == near(1 / levers["most_faults_per_s"])


def test_downtime_and_drain_cost_as_much_as_recovery() -> None:
    whole = first_order(FirstOrderInputs(save_stall_s=30, mtbf_s=36000, recovery_s=600, target=0.93))
    split = first_order(
        FirstOrderInputs(save_stall_s=30, mtbf_s=36000, recovery_s=100, downtime_s=200, drain_s=300, target=0.93)
    )
    assert (split.period_s, split.rate) == (near(whole.period_s), near(whole.rate))
    assert (split.low_s, split.high_s) == (near(whole.low_s or 0), near(whole.high_s or 0))
    assert split.recovery_s == near((whole.recovery_s or 0) - 500)


@pytest.mark.parametrize(("stall", "mtbf"), [(30.0, 36000.0), (1.0, 86400.0), (4.0, 86400.0)])
def test_a_target_that_is_just_reachable_gives_one_period(stall: float, mtbf: float) -> None:
    """Rounding alone would decide here: budget squared equals twice the stall times the rate of faults."""
    recovery = 600.0
    target = 1 - recovery / mtbf - math.sqrt(2 * stall / mtbf)
    plan = first_order(FirstOrderInputs(save_stall_s=stall, mtbf_s=mtbf, recovery_s=recovery, target=target))
    assert plan.feasible
    assert plan.low_s == pytest.approx(plan.period_s, rel=1e-5)
    assert plan.high_s == pytest.approx(plan.period_s, rel=1e-5)


def test_when_recovery_alone_eats_the_budget_no_save_speed_helps() -> None:
    plan = first_order(FirstOrderInputs(save_stall_s=0, mtbf_s=3600, recovery_s=600, target=0.95))
    assert not plan.feasible
    assert plan.save_stall_s is None
    assert "faster saves cannot help" in plan.explanation


def test_faults_more_often_than_recovery_takes_never_show_a_negative_rate() -> None:
    plan = first_order(FirstOrderInputs(save_stall_s=40, mtbf_s=600, recovery_s=1200, target=0.9))
    assert plan.best_rate == plan.rate == 0.0
    assert "shown as 0 %" in plan.explanation


def test_a_refused_target_names_the_best_that_can_be_had() -> None:
    """A save of 40 s, a fault a week, recovery of 20 minutes: 98.5 % can be had and 99 % cannot."""
    week = {"save_stall_s": 40.0, "mtbf_s": 7 * 86400.0, "recovery_s": 1200.0}
    kept = first_order(FirstOrderInputs(**week, target=0.985))
    assert kept.feasible
    assert (kept.low_s or 0) < 6956 < (kept.high_s or 0)
    refused = first_order(FirstOrderInputs(**week, target=0.99))
    assert not refused.feasible
    assert "98.65 %" in refused.explanation


def test_without_faults_any_long_enough_period_keeps_the_target() -> None:
    plan = first_order(FirstOrderInputs(save_stall_s=30, mtbf_s=None, recovery_s=600, target=0.99))
    assert (plan.low_s, plan.high_s) == (near(3000), None)
    assert plan.period_s == near(3000)
    assert plan.rate == near(0.99)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("save_stall_s", -1),
        ("save_stall_s", math.nan),
        ("save_stall_s", "30"),
        ("recovery_s", math.inf),
        ("recovery_s", True),
        ("downtime_s", -0.1),
        ("drain_s", 1e30),
        ("mtbf_s", 0),
        ("mtbf_s", -5),
        ("target", 0),
        ("target", 1),
        ("target", 95),
    ],
)
def test_a_bad_input_is_refused_by_name(field: str, value: Any) -> None:
    good: dict[str, Any] = {"save_stall_s": 30, "mtbf_s": 36000, "recovery_s": 600, "target": 0.93}
    with pytest.raises(InvalidInput) as refused:
        FirstOrderInputs(**{**good, field: value})
    assert refused.value.field == field
    assert refused.value.hint


@given(inputs)
def test_no_rate_is_ever_shown_below_0_or_above_1(given_inputs: FirstOrderInputs) -> None:
    plan = first_order(given_inputs)
    assert 0.0 <= plan.rate <= plan.best_rate <= 1.0
    assert plan.explanation
    assert all(0.0 <= rate <= 1.0 for _, rate in curve(given_inputs, 9))


@given(inputs)
def test_both_ends_of_the_interval_give_the_target_and_enclose_the_optimum(given_inputs: FirstOrderInputs) -> None:
    plan = first_order(given_inputs)
    assume(plan.feasible)
    assert plan.low_s is not None
    if given_inputs.save_stall_s > 0:
        assert rate_at(given_inputs, plan.low_s) == pytest.approx(given_inputs.target, abs=1e-6)
    if plan.high_s is not None:
        assert rate_at(given_inputs, plan.high_s) == pytest.approx(given_inputs.target, abs=1e-6)
        assert plan.low_s <= plan.period_s * (1 + 1e-9)
        assert plan.period_s <= plan.high_s * (1 + 1e-9)
        squared = 2 * given_inputs.save_stall_s * (given_inputs.mtbf_s or 0)
        assert plan.low_s * plan.high_s == pytest.approx(squared, rel=1e-9)


@given(inputs, st.floats(0.2, 5))
def test_no_other_period_is_better_than_the_optimum(given_inputs: FirstOrderInputs, ratio: float) -> None:
    plan = first_order(given_inputs)
    if not plan.optimum_s:
        return
    assert rate_at(given_inputs, plan.period_s * ratio) <= plan.best_rate + 1e-12


@given(inputs, st.sampled_from(["save_stall_s", "recovery_s", "mtbf_s"]))
def test_a_lever_fed_back_makes_the_target_just_reachable(given_inputs: FirstOrderInputs, lever: str) -> None:
    value = getattr(first_order(given_inputs), lever)
    assume(value is not None and (value > 1e-3 or lever != "mtbf_s") and value < 1e12)
    names = ("save_stall_s", "mtbf_s", "recovery_s", "downtime_s", "drain_s", "target")
    changed = {name: getattr(given_inputs, name) for name in names} | {lever: value}
    assert first_order(FirstOrderInputs(**changed)).best_rate == pytest.approx(given_inputs.target, abs=1e-6)


@pytest.mark.parametrize(("ratio", "multiple"), VECTORS["flatness"]["multiple"].items())
def test_the_loss_is_flat_around_the_optimum(ratio: str, multiple: float) -> None:
    free = FirstOrderInputs(save_stall_s=30, mtbf_s=36000, recovery_s=0, target=0.9)
    plan = first_order(free)
    loss = 1 - rate_at(free, plan.period_s * float(ratio))
    assert loss == pytest.approx(multiple * (1 - plan.best_rate), rel=1e-9)


def test_steps_are_the_better_neighbour_of_the_optimum_and_stay_inside_the_interval() -> None:
    expected = VECTORS["steps"]
    chosen = inputs_of(PLANS[expected["plan"]])
    plan = first_order(chosen)
    assert plan.low_s is not None
    stall, step = chosen.save_stall_s, expected["step_s"]
    assert steps(plan.period_s, stall, step) == expected["optimum"]
    assert steps_interval(plan.low_s, plan.high_s, stall, step) == tuple(expected["interval"])


@given(
    stall=st.floats(0.01, 500),
    mtbf=st.floats(1000, 1e8),
    step=st.floats(0.01, 100),
)
def test_no_other_number_of_steps_near_the_optimum_is_better(stall: float, mtbf: float, step: float) -> None:
    chosen = FirstOrderInputs(save_stall_s=stall, mtbf_s=mtbf, recovery_s=0, target=0.5)
    count = steps(first_order(chosen).period_s, stall, step)
    best = rate_at(chosen, count * step + stall)
    for other in (count - 1, count + 1):
        if other >= 1:
            assert rate_at(chosen, other * step + stall) <= best + 1e-12


def test_free_saves_mean_a_save_at_every_step() -> None:
    assert steps(0.0, 0.0, 2.0) == 1


def test_a_period_shorter_than_the_stall_still_means_one_step() -> None:
    assert steps(1.0, 5.0, 2.0) == 1


def test_an_interval_narrower_than_a_step_holds_no_whole_number() -> None:
    assert steps_interval(10.1, 10.9, 0.0, 1.0) is None
    assert steps_interval(10.1, None, 0.0, 1.0) == (11, None)


@pytest.mark.parametrize("step_s", [0, -1, math.nan])
def test_a_step_time_that_is_none_is_refused(step_s: float) -> None:
    with pytest.raises(InvalidInput, match="step_s"):
        steps(100, 1, step_s)


@given(inputs, st.integers(2, 40))
def test_a_curve_rises_in_period_and_covers_the_interval(given_inputs: FirstOrderInputs, points: int) -> None:
    drawn = curve(given_inputs, points)
    plan = first_order(given_inputs)
    periods = [period_s for period_s, _ in drawn]
    assert len(drawn) == points
    assert periods == sorted(set(periods))
    if given_inputs.save_stall_s > 0:
        assert given_inputs.save_stall_s * (1 - 1e-9) <= periods[0]
        assert periods[0] <= max(plan.low_s or plan.period_s, given_inputs.save_stall_s) * (1 + 1e-9)
    if plan.high_s is not None:
        assert periods[-1] >= plan.high_s * (1 - 1e-9)


def test_a_curve_of_one_point_is_refused() -> None:
    with pytest.raises(InvalidInput, match="points"):
        curve(inputs_of(PLANS["baseline"]), 1)
