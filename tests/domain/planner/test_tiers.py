"""Copies that cannot follow every save lag behind: neither the period waits for them, nor does the rate forget them."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact, first_order
from reliability.domain.planner.request import Request
from reliability.domain.planner.spread import ettr_sd
from reliability.errors import InvalidInput
from tests.domain.planner.cases import FEW, or_nothing, sizes

BOTH = pytest.mark.parametrize("model", [exact, first_order], ids=["exact", "first order"])
RARE = Inputs(save_stall_s=1, mtbf_s=21600, recovery_s=60, target=0.9, tiers=((0.2, 3600.0),))


@st.composite
def tiered(draw: st.DrawFn) -> Inputs:
    """Draw inputs with one to three tiers, which need all faults or some."""
    mtbf_s = draw(sizes(1, 7))
    parts = draw(st.lists(st.floats(0.001, 1), min_size=1, max_size=3))
    total = math.fsum(parts) + draw(st.one_of(st.just(0.0), st.floats(0.01, 10)))
    recovery_s = mtbf_s * draw(or_nothing(sizes(-5, -0.5)))
    inputs = Inputs(
        save_stall_s=mtbf_s * draw(or_nothing(sizes(-6, 0))),
        mtbf_s=mtbf_s,
        recovery_s=recovery_s,
        downtime_s=mtbf_s * draw(or_nothing(sizes(-5, -0.5))),
        target=0.5,
        tiers=tuple((min(1.0, part / total), mtbf_s * draw(sizes(-5, 0.7))) for part in parts),
        cluster_availability=draw(st.sampled_from([1.0, 0.9])),
        planned_stops_per_s=draw(st.sampled_from([0.0, 0.05])) / (mtbf_s + recovery_s),
    )
    highest = exact.best(inputs)[1]
    assume(highest > 1e-6)
    return replace(inputs, target=min(highest * draw(st.floats(0.5, 1.5)), 0.999999))


def periods(inputs: Inputs) -> list[float]:
    assert inputs.mtbf_s is not None
    spaced = [inputs.save_stall_s + inputs.mtbf_s * 10.0 ** (power / 8) for power in range(-64, 16)]
    return [*spaced, *(drain_s for _, drain_s in inputs.tiers if drain_s > inputs.save_stall_s)]


@BOTH
@given(inputs=tiered())
def test_no_period_is_better_than_the_best(model: Any, inputs: Inputs) -> None:
    plan = model.plan(inputs)
    assert plan.ettr_max == pytest.approx(model.ettr_at(inputs, plan.period_s), rel=1e-10, abs=1e-12)
    assert max(model.ettr_at(inputs, period_s) for period_s in periods(inputs)) <= plan.ettr_max + 1e-11


@BOTH
@given(inputs=tiered())
def test_at_both_ends_of_the_interval_the_target_is_just_kept(model: Any, inputs: Inputs) -> None:
    plan = model.plan(inputs)
    if plan.interval_s is None:
        assert plan.ettr_max < inputs.target * (1 + 1e-9)
        return
    low_s, high_s = plan.interval_s
    assert low_s <= plan.period_s <= high_s
    assume(plan.ettr_max > inputs.target * (1 + 1e-9))
    assert model.ettr_at(inputs, high_s) == pytest.approx(inputs.target, rel=1e-8)
    if low_s > 0 and inputs.save_stall_s > 0:
        assert model.ettr_at(inputs, low_s) == pytest.approx(inputs.target, rel=1e-8)


@BOTH
@FEW
@given(inputs=tiered())
def test_each_limit_fed_back_just_reaches_the_target(model: Any, inputs: Inputs) -> None:
    limits = model.plan(inputs).limits
    for name in ("save_stall_s", "recovery_s", "mtbf_s"):
        value = getattr(limits, name)
        if value is None:
            continue
        plan = model.plan(replace(inputs, **{name: value}))
        assert plan.feasible, name
        if value > 0:
            assert plan.ettr_max == pytest.approx(inputs.target, rel=1e-8), name
    stall_s = limits.save_stall_s
    if stall_s:
        assert not model.plan(replace(inputs, save_stall_s=stall_s * (1 + 1e-6) + 1e-9)).feasible


@given(inputs=tiered())
def test_first_order_stays_a_lower_bound_on_tiers(inputs: Inputs) -> None:
    for period_s in periods(inputs)[::7]:
        assert first_order.ettr_at(inputs, period_s) <= exact.ettr_at(inputs, period_s) + 1e-12


@given(inputs=tiered())
def test_the_shares_add_to_all_time_and_the_useful_one_is_the_rate(inputs: Inputs) -> None:
    for period_s in periods(inputs)[::7]:
        shares = exact.shares_at(inputs, period_s)
        parts = (shares.useful, shares.saving, shares.rollback, shares.recovery, shares.downtime)
        assert math.fsum(parts) == pytest.approx(1, abs=1e-9)
        assert shares.useful == pytest.approx(exact.ettr_at(inputs, period_s), rel=1e-9, abs=1e-300)


@given(inputs=tiered())
def test_where_every_tier_follows_every_save_only_the_mean_drain_counts(inputs: Inputs) -> None:
    one = replace(inputs, tiers=(), drain_s=inputs.mean_drain_s)
    period_s = max(inputs.slowest_s, inputs.save_stall_s * 1.1)
    assert exact.ettr_at(inputs, period_s) == pytest.approx(exact.ettr_at(one, period_s), rel=1e-12, abs=1e-300)


@given(st.floats(0, 0.5), sizes(-3, 0.5), st.floats(0.1, 1), st.floats(0.1, 1))
def test_below_the_drain_that_every_fault_needs_the_rate_only_falls(
    stall: float, drain: float, at: float, less: float
) -> None:
    inputs = Inputs(save_stall_s=1e4 * drain * stall, mtbf_s=1e4, recovery_s=60, target=0.5, drain_s=1e4 * drain)
    period_s = max(inputs.drain_s * at, inputs.save_stall_s)
    assert exact.ettr_at(inputs, period_s * less) <= exact.ettr_at(inputs, period_s) * (1 + 1e-12)
    as_tier = replace(inputs, drain_s=0.0, tiers=((1.0, inputs.drain_s),))
    assert exact.ettr_at(as_tier, period_s) == exact.ettr_at(inputs, period_s)


def test_a_drain_that_few_faults_need_does_not_bound_the_period() -> None:
    plan = exact.plan(RARE)
    assert plan.period_s == pytest.approx(232.6, abs=0.1)
    assert plan.period_s < RARE.slowest_s
    every = exact.plan(replace(RARE, tiers=(), drain_s=3600.0))
    assert every.period_s == 3600.0


def test_tiers_that_contradict_the_rest_are_refused() -> None:
    for tiers, changes, field in (
        (((0.6, 10.0), (0.6, 5.0)), {}, "tiers"),
        (((1.5, 10.0),), {}, "tiers"),
        (((0.5, -1.0),), {}, "tiers"),
        (((0.5, math.inf),), {}, "tiers"),
        (((0.5, 1.0),), {"drain_s": 3.0}, "drain_s"),
    ):
        with pytest.raises(InvalidInput) as refused:
            replace(RARE, tiers=tiers, **changes)
        assert refused.value.field == field


def test_what_one_fault_undoes_varies_more_over_several_tiers() -> None:
    one = replace(RARE, tiers=(), drain_s=RARE.lag_s(300.0))
    assert ettr_sd(RARE, 300.0, 1e6) > 1.2 * ettr_sd(replace(one, drain_s=min(one.drain_s, 300.0)), 300.0, 1e6)


@pytest.mark.parametrize("planned_stops_per_s", [0.0, 2e-6])
@pytest.mark.parametrize("standbys", [None, 0, 2])
@pytest.mark.parametrize("node_share", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("target", [0.7, 0.9, 0.97])
def test_limits_of_a_whole_request_fed_back_reach_the_target(
    planned_stops_per_s: float, standbys: int | None, node_share: float, target: float
) -> None:
    request = Request(
        save_stall_s=5, mtbf_s=36_000.0, recovery_s=300, target=target, downtime_s=120, drain_s=2400, drain_ssd_s=300,
        node_share=node_share, memory_share=min(0.3, 1 - node_share), standbys=standbys, repair_s=40_000.0,
        planned_stops_per_s=planned_stops_per_s,
    )  # fmt: skip
    limits = exact.plan(request.inputs, inputs_at=request.inputs_at if request.waits else None).limits
    for name in ("save_stall_s", "recovery_s", "mtbf_s"):
        value = getattr(limits, name)
        if value is None:
            continue
        plan = exact.plan(replace(request, **{name: value}).inputs)
        assert plan.feasible, name
        assert plan.ettr_max == pytest.approx(target, rel=1e-8), name
