"""Each limit fed back makes the target just reachable, and the corner cases have defined answers."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact, first_order
from reliability.domain.planner.inputs import planned_stop_s
from reliability.domain.planner.limits import recovery_limit, stall_limit
from tests.domain.planner.cases import FEW, sizes, wide

MODELS = [exact, first_order]
BOTH = pytest.mark.parametrize("model", MODELS, ids=["exact", "first order"])
LEVERS = ("save_stall_s", "recovery_s", "mtbf_s")


@BOTH
@pytest.mark.parametrize("lever", LEVERS)
@FEW
@given(inputs=wide(stops=True))
def test_a_limit_fed_back_makes_the_target_just_reachable(lever: str, model: Any, inputs: Inputs) -> None:
    limit = getattr(model.plan(inputs).limits, lever)
    if limit is None:
        worst = {"save_stall_s": 0.0, "recovery_s": 0.0, "mtbf_s": 1e30}[lever]
        assert model.plan(replace(inputs, planned_stops_per_s=0.0, **{lever: worst})).ettr_max <= inputs.target or (
            inputs.planned_stops_per_s > 0
        )
        return
    assume(limit < 1e30)
    back = model.plan(replace(inputs, **{lever: limit}))
    assert back.ettr_max == pytest.approx(inputs.target, rel=1e-9)


@BOTH
@pytest.mark.parametrize("lever", LEVERS)
@FEW
@given(inputs=wide(stops=True), better=st.floats(0.01, 0.5))
def test_on_the_good_side_of_a_limit_the_target_is_reached_and_beyond_it_is_not(
    lever: str, model: Any, inputs: Inputs, better: float
) -> None:
    limit = getattr(model.plan(inputs).limits, lever)
    if limit is None or not 1e-20 < limit < 1e20:
        return
    step = 1 + better
    good, bad = (limit * step, limit / step) if lever == "mtbf_s" else (limit / step, limit * step)
    assert model.plan(replace(inputs, **{lever: good})).feasible
    if lever == "save_stall_s" or not inputs.planned_stops_per_s:
        assert not model.plan(replace(inputs, **{lever: bad})).feasible


@given(wide(), st.floats(0.1, 3))
def test_a_drain_that_binds_is_counted_in_every_limit(inputs: Inputs, ratio: float) -> None:
    """The drain is set to around the period that the limit without it would have."""
    period_s = exact.best(inputs)[0]
    assert period_s is not None
    drained = replace(inputs, drain_s=period_s * ratio)
    for model in (exact, first_order):
        for lever in LEVERS:
            limit = getattr(model.plan(drained).limits, lever)
            if limit is not None and limit < 1e30:
                back = model.plan(replace(drained, **{lever: limit}))
                assert back.ettr_max == pytest.approx(inputs.target, rel=1e-9)


@given(wide(), st.floats(0.1, 1))
def test_a_limit_counts_a_downtime_that_depends_on_the_rate_of_faults(inputs: Inputs, share: float) -> None:
    def downtime_at(faults_per_s: float) -> float:
        return inputs.downtime_s + share * inputs.save_stall_s * min(1.0, faults_per_s * inputs.save_stall_s)

    limit = exact.plan(inputs, downtime_at=downtime_at).limits.mtbf_s
    assert limit is not None
    back = replace(inputs, mtbf_s=limit, downtime_s=downtime_at(1 / limit))
    assert exact.best(back)[1] == pytest.approx(inputs.target, rel=1e-9)


def just_reachable(stall_s: float, mtbf_s: float, recovery_s: float) -> Inputs:
    target = 1 - recovery_s / mtbf_s - math.sqrt(2 * stall_s / mtbf_s)
    return Inputs(save_stall_s=stall_s, mtbf_s=mtbf_s, recovery_s=recovery_s, target=target)


@pytest.mark.parametrize(("stall", "mtbf"), [(30.0, 36000.0), (1.0, 86400.0), (4.0, 86400.0), (50.0, 40000.0)])
def test_a_target_that_is_just_reachable_by_first_order_has_one_period(stall: float, mtbf: float) -> None:
    plan = first_order.plan(just_reachable(stall, mtbf, 600.0))
    assert plan.feasible
    assert plan.interval_s == (plan.period_s, plan.period_s)


@pytest.mark.parametrize(("stall", "mtbf"), [(30.0, 36000.0), (300.0, 900.0), (1e-4, 1e5), (5e4, 1e4)])
def test_a_target_that_is_just_reachable_has_one_period(stall: float, mtbf: float) -> None:
    inputs = Inputs(save_stall_s=stall, mtbf_s=mtbf, recovery_s=60.0, downtime_s=20.0, target=0.5)
    plan = exact.plan(replace(inputs, target=exact.best(inputs)[1]))
    assert plan.feasible
    assert plan.interval_s == (plan.period_s, plan.period_s)


@BOTH
@FEW
@given(inputs=wide(stops=True), power=st.integers(-9, -3))
def test_a_hair_above_the_best_rate_is_out_of_reach_and_a_hair_below_is_not(
    model: Any, inputs: Inputs, power: int
) -> None:
    highest, hair = model.plan(inputs).ettr_max, 10.0**power
    assume(1e-9 < highest * (1 + hair) < 1)
    assert not model.plan(replace(inputs, target=highest * (1 + hair))).feasible
    assert model.plan(replace(inputs, target=highest * (1 - hair))).feasible


@BOTH
def test_when_recovery_alone_eats_the_budget_no_save_speed_helps(model: Any) -> None:
    plan = model.plan(Inputs(save_stall_s=1, mtbf_s=3600, recovery_s=600, target=0.95))
    assert not plan.feasible
    assert plan.interval_s is None
    assert plan.limits.save_stall_s is None
    assert plan.limits.recovery_s is not None
    assert plan.limits.mtbf_s is not None


@BOTH
def test_a_recovery_of_nothing_is_not_enough_when_saving_alone_costs_too_much(model: Any) -> None:
    plan = model.plan(Inputs(save_stall_s=300, mtbf_s=10800, recovery_s=900, target=0.95))
    assert plan.limits.recovery_s is None


@BOTH
def test_without_faults_every_long_enough_period_keeps_the_target(model: Any) -> None:
    plan = model.plan(Inputs(save_stall_s=30, mtbf_s=None, recovery_s=600, target=0.99))
    assert (plan.period_s, plan.work_s, plan.ettr_max) == (None, None, 1.0)
    assert plan.interval_s == (pytest.approx(3000, rel=1e-12), None)
    assert (plan.limits.save_stall_s, plan.limits.recovery_s) == (None, None)
    assert plan.limits.mtbf_s is not None
    assert plan.shares.useful == 1.0
    drained = model.plan(Inputs(save_stall_s=30, mtbf_s=None, recovery_s=600, drain_s=5000, target=0.99))
    assert drained.interval_s == (5000, None)


@BOTH
def test_free_saves_are_best_as_often_as_possible(model: Any) -> None:
    plan = model.plan(Inputs(save_stall_s=0, mtbf_s=36000, recovery_s=600, target=0.95))
    assert (plan.period_s, plan.work_s) == (0, 0)
    assert plan.interval_s is not None
    assert plan.interval_s[0] == 0
    drained = model.plan(Inputs(save_stall_s=0, mtbf_s=36000, recovery_s=600, drain_s=60, target=0.95))
    assert drained.period_s == 60
    assert drained.interval_s is not None
    assert drained.interval_s[0] == 60


@BOTH
@pytest.mark.parametrize("mtbf_s", [None, 36000.0])
def test_nothing_limits_the_faults_of_a_job_to_which_they_cost_nothing(model: Any, mtbf_s: float | None) -> None:
    plan = model.plan(Inputs(save_stall_s=0, mtbf_s=mtbf_s, recovery_s=0, target=0.95))
    assert plan.feasible
    assert plan.limits.mtbf_s is None


@BOTH
@pytest.mark.parametrize("mtbf_s", [None, 1e9])
def test_a_target_above_the_availability_of_the_cluster_is_out_of_reach(model: Any, mtbf_s: float | None) -> None:
    inputs = Inputs(save_stall_s=1, mtbf_s=mtbf_s, recovery_s=1, cluster_availability=0.9, target=0.95)
    plan = model.plan(inputs)
    assert not plan.feasible
    assert plan.ettr_max <= 0.9
    assert plan.shares.downtime >= 0.1 - 1e-12
    assert (plan.limits.save_stall_s, plan.limits.recovery_s, plan.limits.mtbf_s) == (None, None, None)


@BOTH
@FEW
@given(inputs=wide(stops=True), available=st.floats(0.1, 1))
def test_availability_of_the_cluster_counts_like_a_higher_target(model: Any, inputs: Inputs, available: float) -> None:
    assume(inputs.target < available)
    part = model.plan(replace(inputs, planned_stops_per_s=0.0, cluster_availability=available))
    whole = model.plan(
        replace(inputs, planned_stops_per_s=0.0, cluster_availability=1.0, target=inputs.target / available)
    )
    assert part.ettr_max == pytest.approx(whole.ettr_max * available, rel=1e-12)


@given(sizes(-3, 6), sizes(-9, 0.5), sizes(-9, 0.5))
def test_a_planned_stop_costs_what_recoveries_until_one_completes_take(mtbf: float, share: float, down: float) -> None:
    """With p the chance of a recovery without a fault, T = D + (1 - p)/lambda + (1 - p) T."""
    recovery_s, downtime_s = mtbf * share, mtbf * down
    fails = -math.expm1(-share)
    expected = (downtime_s + mtbf * fails) / (1 - fails)
    assert planned_stop_s(mtbf, recovery_s, downtime_s) == pytest.approx(expected, rel=1e-9)
    assert planned_stop_s(None, recovery_s, downtime_s) == recovery_s + downtime_s


@BOTH
def test_planned_stops_without_faults_leave_a_limit_of_the_recovery(model: Any) -> None:
    inputs = Inputs(save_stall_s=0, mtbf_s=None, recovery_s=600, downtime_s=60, target=0.9, planned_stops_per_s=1e-5)
    plan = model.plan(inputs)
    assert plan.ettr_max == pytest.approx(1 - 1e-5 * 660, rel=1e-12)
    assert plan.limits.recovery_s == pytest.approx(0.1 / 1e-5 - 60, rel=1e-12)
    assert plan.limits.mtbf_s is not None


@given(wide(stops=True))
def test_a_limit_asked_for_alone_is_that_of_the_plan(inputs: Inputs) -> None:
    limits = exact.plan(inputs).limits
    assert stall_limit(inputs) == limits.save_stall_s
    assert recovery_limit(inputs) == limits.recovery_s
