"""What holds for any inputs, from stalls of a billionth of the time between faults to ten times it."""

import math
from dataclasses import astuple, fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, ModelPlan, exact, first_order
from tests.domain.planner.cases import FEW, or_nothing, sizes, wide

pytestmark = pytest.mark.slow

MODELS = [exact, first_order]
TIMES = ("save_stall_s", "mtbf_s", "recovery_s", "downtime_s", "drain_s")
ratios = st.one_of(st.floats(0.01, 100), sizes(-6, 6))


def period_of(inputs: Inputs) -> float:
    period_s = exact.plan(inputs).period_s
    assert period_s is not None
    return period_s


def numbers(plan: ModelPlan) -> list[float]:
    found = [plan.ettr_max, plan.period_s, plan.work_s, *(plan.interval_s or ())]
    found += [*astuple(plan.shares), *astuple(plan.limits)]
    return [value for value in found if value is not None]


@given(wide(stops=True), ratios)
def test_the_first_order_is_a_lower_bound(inputs: Inputs, ratio: float) -> None:
    period_s = max(period_of(inputs) * ratio, inputs.save_stall_s)
    assert first_order.ettr_at(inputs, period_s) <= exact.ettr_at(inputs, period_s) + 1e-15
    assert first_order.plan(inputs).ettr_max <= exact.plan(inputs).ettr_max + 1e-15


@given(wide(stops=True))
def test_what_the_first_order_calls_sufficient_is(inputs: Inputs) -> None:
    inner, outer = first_order.plan(inputs).interval_s, exact.plan(inputs).interval_s
    if inner is None or inner[1] is None:
        return
    assert outer is not None
    assert outer[1] is not None
    assert outer[0] <= inner[0] * (1 + 1e-7)
    assert inner[1] <= outer[1] * (1 + 1e-7)


@pytest.mark.parametrize("model", MODELS)
@FEW
@given(inputs=wide(stops=True))
def test_a_target_is_kept_at_both_ends_of_the_interval_and_met_there(model: Any, inputs: Inputs) -> None:
    plan = model.plan(inputs)
    assert plan.feasible is (plan.interval_s is not None)
    if plan.interval_s is None:
        assert plan.ettr_max < inputs.target
        return
    low_s, high_s = plan.interval_s
    assert plan.ettr_max >= inputs.target * (1 - 1e-12)
    assert inputs.drain_s <= low_s <= plan.period_s <= high_s
    if low_s > inputs.drain_s:
        assert model.ettr_at(inputs, low_s) == pytest.approx(inputs.target, rel=1e-9)
    assert model.ettr_at(inputs, low_s) >= inputs.target * (1 - 1e-9)
    assert model.ettr_at(inputs, high_s) == pytest.approx(inputs.target, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
@FEW
@given(inputs=wide(stops=True), ratio=ratios)
def test_no_other_period_is_better_than_the_best(model: Any, inputs: Inputs, ratio: float) -> None:
    plan = model.plan(inputs)
    other_s = max(plan.period_s * ratio, inputs.drain_s)
    assert model.ettr_at(inputs, other_s) <= plan.ettr_max + 1e-13 * max(1.0, abs(plan.ettr_max))
    assert model.ettr_at(inputs, plan.period_s) == pytest.approx(plan.ettr_max, rel=1e-12, abs=1e-300)


@given(wide(drains=False))
def test_the_first_order_interval_is_symmetric_around_its_best_period_on_a_log_axis(inputs: Inputs) -> None:
    plan = first_order.plan(inputs)
    if plan.interval_s is None or plan.interval_s[1] is None:
        return
    assert inputs.mtbf_s is not None
    both = plan.interval_s[0] * plan.interval_s[1]
    assert both == pytest.approx(2 * inputs.save_stall_s * inputs.mtbf_s, rel=1e-9)


@pytest.mark.parametrize("worse", ["save_stall_s", "faults", "recovery_s", "downtime_s", "drain_s"])
@FEW
@given(inputs=wide(stops=True), more=st.floats(1.001, 10))
def test_the_best_rate_falls_with_everything_that_gets_worse(worse: str, inputs: Inputs, more: float) -> None:
    assert inputs.mtbf_s is not None
    inputs = replace(inputs, planned_stops_per_s=0.0)
    if worse == "faults":
        changed = replace(inputs, mtbf_s=inputs.mtbf_s / more)
    else:
        added = 1e-5 * inputs.mtbf_s
        changed = replace(inputs, **{worse: (getattr(inputs, worse) + added) * more})
    before, after = exact.best(inputs)[1], exact.best(changed)[1]
    assert after < before or before == 0.0


@given(wide(drains=False), or_nothing(sizes(-6, 2)), or_nothing(sizes(-6, 2)))
def test_recovery_and_downtime_do_not_move_the_best_period(inputs: Inputs, recovery: float, downtime: float) -> None:
    assert inputs.mtbf_s is not None
    other = replace(inputs, recovery_s=recovery * inputs.mtbf_s, downtime_s=downtime * inputs.mtbf_s)
    assert period_of(other) == period_of(inputs)


@given(wide(drains=False), st.floats(0, 1))
def test_a_drain_no_longer_than_the_period_costs_as_much_as_recovery(inputs: Inputs, share: float) -> None:
    drain_s = share * period_of(inputs)
    drained, recovering = replace(inputs, drain_s=drain_s), replace(inputs, recovery_s=inputs.recovery_s + drain_s)
    assert period_of(drained) == period_of(inputs)
    assert exact.best(drained)[1] == pytest.approx(exact.best(recovering)[1], rel=1e-12, abs=1e-300)


@given(wide())
def test_a_drain_longer_than_the_best_period_is_waited_for(inputs: Inputs) -> None:
    free_s = period_of(replace(inputs, drain_s=0.0))
    waiting = replace(inputs, drain_s=3 * free_s)
    for model in (exact, first_order):
        plan = model.plan(waiting)
        assert plan.period_s == waiting.drain_s
        assert plan.work_s == waiting.drain_s - waiting.save_stall_s


@pytest.mark.parametrize("model", MODELS)
@FEW
@given(inputs=wide(stops=True), scale=sizes(-6, 6))
def test_another_unit_of_time_changes_no_rate(model: Any, inputs: Inputs, scale: float) -> None:
    scaled = replace(
        inputs,
        planned_stops_per_s=inputs.planned_stops_per_s / scale,
        **{name: getattr(inputs, name) * scale for name in TIMES},
    )
    one, other = model.plan(inputs), model.plan(scaled)
    assert other.ettr_max == pytest.approx(one.ettr_max, rel=1e-9, abs=1e-12)
    assert other.period_s == pytest.approx(one.period_s * scale, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
@FEW
@given(inputs=wide(stops=True), ratio=ratios)
def test_the_shares_of_time_add_up_to_1(model: Any, inputs: Inputs, ratio: float) -> None:
    period_s = period_of(inputs) * ratio
    shares = model.shares_at(inputs, period_s)
    assert math.fsum(astuple(shares)) == pytest.approx(1, abs=1e-12 * max(1.0, abs(shares.useful)))
    if period_s >= inputs.save_stall_s:
        assert shares.useful == pytest.approx(model.ettr_at(inputs, period_s), rel=1e-9, abs=1e-14)
    if model is exact:
        assert all(0.0 <= share <= 1.0 for share in astuple(shares))


@given(wide(stops=True), st.floats(0, 1))
def test_a_period_below_the_stall_leaves_no_time_for_work(inputs: Inputs, ratio: float) -> None:
    period_s = inputs.save_stall_s * ratio
    assume(period_s > 0)
    assert exact.ettr_at(inputs, period_s) == exact.shares_at(inputs, period_s).useful == 0.0


extreme = st.one_of(
    st.just(0.0),
    st.floats(0, 1e100, allow_nan=False),
    sizes(-100, 100),
    st.just(5e-324),
    st.integers(0, 10**60),
)


@st.composite
def extremes(draw: st.DrawFn) -> Inputs:
    """Draw any inputs that are accepted, however absurd."""
    values = {field.name: draw(extreme) for field in fields(Inputs) if field.name.endswith("_s")}
    values["mtbf_s"] = draw(st.one_of(st.none(), sizes(-100, 100)))
    values["planned_stops_per_s"] = draw(or_nothing(sizes(-150, -101)))
    share = st.one_of(sizes(-300, -1), st.floats(0.001, 0.999), st.just(1 - 2**-53), st.just(5e-324))
    shares = {"target": draw(share), "cluster_availability": draw(st.one_of(st.just(1.0), share))}
    if values["mtbf_s"] is not None and values["recovery_s"] > values["mtbf_s"]:
        values["planned_stops_per_s"] = 0.0
    return Inputs(**values, **shares)


@pytest.mark.parametrize("model", MODELS)
@FEW
@given(inputs=extremes())
def test_every_result_is_a_number_whatever_the_inputs(model: Any, inputs: Inputs) -> None:
    plan = model.plan(inputs)
    assert all(math.isfinite(value) for value in numbers(plan))
    assert all(value >= 0 for value in astuple(plan.limits) if value is not None)
    if model is exact:
        assert 0.0 <= plan.ettr_max <= 1.0
        assert all(0.0 <= share <= 1.0 for share in astuple(plan.shares))
