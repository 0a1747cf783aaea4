"""Levels of saving: which to keep, how often, what drains and aborted drains cost, and the exact nested form."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner import first_order as one_level
from reliability.domain.planner.levels import (
    Level,
    drain_over_classes,
    effective_stall,
    ettr_at,
    ettr_with_aborted_drains,
    exact_nested,
    first_order,
    mean_rollback,
    merged,
    nested_periods,
    overhead_at,
)
from reliability.errors import InvalidInput
from tests.domain.planner.cases import or_nothing, sizes, wide
from tests.domain.planner.models import MODELS, near, within

CASES: dict[str, Any] = MODELS["levels"]

one = st.builds(
    Level,
    stall_s=sizes(-2, 3),
    mtbf_s=sizes(2, 7),
    recovery_s=or_nothing(sizes(0, 3)),
    drain_s=or_nothing(sizes(0, 4)),
)
some = st.lists(one, min_size=1, max_size=4)


def levels_of(case: dict[str, Any]) -> tuple[Level, ...]:
    return tuple(Level(**level) for level in case["levels"])


def test_two_blocking_levels_agree_with_the_case() -> None:
    case = CASES["blocking"]
    plan = first_order(levels_of(case), case["downtime_s"])
    assert plan.periods_s == (near(case["periods_s"][0]), near(case["periods_s"][1]))
    assert plan.ettr == near(case["first_order"])
    assert plan.multiples == (case["multiple"],)
    assert plan.dropped == ()


def test_the_exact_nested_form_agrees_with_the_case_and_its_simulation() -> None:
    case = CASES["blocking"]
    levels = levels_of(case)
    work_s = case["periods_s"][0] - levels[0].stall_s
    rate = exact_nested(levels, case["downtime_s"], work_s, (case["multiple"],))
    assert rate == near(case["exact"])
    assert rate == within(case["simulated"])
    assert case["first_order"] == pytest.approx(rate, abs=0.02)


def test_drains_set_the_least_period_and_the_age_of_the_last_copy() -> None:
    case = CASES["draining"]
    levels = levels_of(case)
    plan = first_order(levels, case["downtime_s"])
    assert plan.periods_s == tuple(near(period_s) for period_s in case["best_periods_s"])
    rollbacks = [mean_rollback(tau, level.drain_s) for tau, level in zip(case["periods_s"], levels, strict=True)]
    assert rollbacks == [near(rollback_s) for rollback_s in case["mean_rollback_s"]]
    assert ettr_at(levels, case["periods_s"], case["downtime_s"]) == near(case["first_order"])


def test_drains_that_lower_faults_abort_cost_what_the_case_says() -> None:
    case = CASES["draining"]
    levels = levels_of(case)
    rollback_s = mean_rollback(case["periods_s"][1], levels[1].drain_s, levels[0].faults_per_s)
    assert rollback_s == near(case["mean_rollback_with_aborts_s"])
    rate = ettr_with_aborted_drains(levels, case["periods_s"], case["downtime_s"])
    assert rate == near(case["first_order_with_aborts"])
    assert rate == pytest.approx(case["simulated"]["ettr"], abs=0.004)


def test_a_useless_level_is_dropped_and_its_faults_go_to_the_next() -> None:
    case = CASES["useless"]
    levels = levels_of(case)
    alone = [first_order([level]).periods_s[0] for level in levels]
    assert alone == [near(period_s) for period_s in case["alone_s"]]
    both = nested_periods(levels)
    assert both[0] == both[1]
    assert overhead_at(levels, both) == near(case["overhead_of_both"])
    plan = first_order(levels)
    assert plan.dropped == (0,)
    assert plan.periods_s == (near(case["period_s"]),)
    assert plan.overhead == near(case["overhead"])
    assert plan.multiples == ()


@given(some, st.floats(0, 600))
def test_the_chosen_levels_are_never_worse_than_keeping_all(levels: list[Level], downtime_s: float) -> None:
    plan = first_order(levels, downtime_s)
    assert plan.ettr >= ettr_at(levels, nested_periods(levels), downtime_s) - 1e-12
    assert plan.levels[-1].stall_s == levels[-1].stall_s
    assert math.fsum(level.faults_per_s for level in plan.levels) == near(
        math.fsum(level.faults_per_s for level in levels)
    )


@given(some)
def test_periods_never_fall_from_level_to_level_nor_below_a_drain(levels: list[Level]) -> None:
    periods = nested_periods(levels)
    assert all(lower <= higher for lower, higher in pairwise(periods))
    assert all(period_s >= level.drain_s for period_s, level in zip(periods, levels, strict=True))


@given(some, st.lists(st.floats(0.2, 5), min_size=4, max_size=4))
def test_no_other_nested_periods_have_a_smaller_overhead(levels: list[Level], factors: list[float]) -> None:
    periods = nested_periods(levels)
    others, longest = [], 0.0
    for level, period_s, factor in zip(levels, periods, factors, strict=False):
        longest = max(longest, period_s * factor, level.drain_s)
        others.append(longest)
    assert overhead_at(levels, periods) <= overhead_at(levels, others) * (1 + 1e-12)


@given(some, st.floats(0, 600))
def test_whole_multiples_let_drains_end_and_aborted_drains_never_help(levels: list[Level], downtime_s: float) -> None:
    plan = first_order(levels, downtime_s)
    assert len(plan.multiples) == len(plan.levels) - 1
    period_s = plan.periods_s[0]
    for multiple, level in zip(plan.multiples, plan.levels[1:], strict=True):
        period_s *= multiple
        assert period_s >= level.drain_s * (1 - 1e-8)
    assert plan.ettr_with_aborted_drains <= plan.ettr + 1e-12


def test_a_level_that_no_fault_needs_is_left_out() -> None:
    memory = Level(stall_s=0.5, mtbf_s=3600.0)
    plan = first_order([memory, Level(stall_s=60, mtbf_s=None)])
    assert plan.dropped == (1,)
    assert plan.levels == (memory,)
    lowest = first_order([Level(stall_s=0.5, mtbf_s=None), Level(stall_s=60, mtbf_s=36000.0)])
    assert lowest.dropped == (0,)


def test_a_drain_that_never_gets_through_leaves_no_copy() -> None:
    assert mean_rollback(600.0, 1e6, 1.0) == math.inf


@given(wide(drains=False))
def test_one_level_is_the_planner_of_one_level(inputs: Inputs) -> None:
    level = Level(stall_s=inputs.save_stall_s, mtbf_s=inputs.mtbf_s, recovery_s=inputs.recovery_s)
    plan = first_order([level], inputs.downtime_s)
    period_s = one_level.plan(inputs).period_s
    assert plan.periods_s == (near(period_s or 0.0, 1e-12),)
    assert plan.ettr == pytest.approx(one_level.plan(inputs).ettr_max, rel=1e-9, abs=1e-9)


@given(wide(drains=False), st.floats(-3, 3))
def test_the_exact_nested_form_with_one_level_is_the_exact_model(inputs: Inputs, power: float) -> None:
    assert inputs.mtbf_s is not None
    work_s = inputs.mtbf_s * 10.0**power
    level = Level(stall_s=inputs.save_stall_s, mtbf_s=inputs.mtbf_s, recovery_s=inputs.recovery_s)
    expected = exact.ettr_at(inputs, work_s + inputs.save_stall_s)
    assert exact_nested([level], inputs.downtime_s, work_s) == pytest.approx(expected, rel=1e-9, abs=1e-290)


def solved(rows: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with pivots, on copies."""
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for column in range(len(table)):
        pivot = max(range(column, len(table)), key=lambda index: abs(table[index][column]))
        table[column], table[pivot] = table[pivot], table[column]
        for index in range(len(table)):
            if index != column and table[index][column]:
                factor = table[index][column] / table[column][column]
                table[index] = [a - factor * b for a, b in zip(table[index], table[column], strict=True)]
    return [row[-1] / row[index] for index, row in enumerate(table)]


def nested_by_elimination(levels: list[Level], downtime_s: float, work_s: float, multiples: tuple[int, ...]) -> float:
    """The same chain written out: one unknown for each V_j and for each recovery from class c at segment j."""
    every = [math.prod(multiples[:c]) for c in range(len(levels))]
    count, total = every[-1], math.fsum(level.faults_per_s for level in levels)
    share = [level.faults_per_s / total for level in levels]
    recovery = {(c, j): count + c * count + j for c in range(len(levels)) for j in range(count)}
    size = count * (1 + len(levels))
    rows = [[float(i == k) for k in range(size)] for i in range(size)]
    right = [0.0] * size
    for j in range(count):
        length = work_s + sum(level.stall_s for level, m in zip(levels, every, strict=True) if (j + 1) % m == 0)
        p = math.exp(-total * length)
        right[j] = (1 - p) / total
        if j + 1 < count:
            rows[j][j + 1] -= p
        for c, m in enumerate(every):
            rows[j][recovery[c, j // m * m]] -= (1 - p) * share[c]
    for (c, j), row in recovery.items():
        p = math.exp(-total * levels[c].recovery_s)
        right[row] = downtime_s + (1 - p) / total
        rows[row][j] -= p
        for other in range(len(levels)):
            worst = max(c, other)
            rows[row][recovery[worst, j // every[worst] * every[worst]]] -= (1 - p) * share[other]
    return count * work_s / solved(rows, right)[0]


@pytest.mark.parametrize("multiples", [(1, 1), (2, 3), (5, 2), (1, 6)])
def test_three_nested_levels_agree_with_the_linear_system(multiples: tuple[int, ...]) -> None:
    levels = [
        Level(stall_s=2, mtbf_s=4000.0, recovery_s=20),
        Level(stall_s=15, mtbf_s=20_000.0, recovery_s=120),
        Level(stall_s=90, mtbf_s=90_000.0, recovery_s=900),
    ]
    expected = nested_by_elimination(levels, 45.0, 200.0, multiples)
    assert exact_nested(levels, 45.0, 200.0, multiples) == near(expected, 1e-12)


def test_the_chosen_levels_are_confirmed_by_the_exact_form() -> None:
    levels = [
        Level(stall_s=2, mtbf_s=14_400.0, recovery_s=30),
        Level(stall_s=20, mtbf_s=86_400.0, recovery_s=120),
        Level(stall_s=120, mtbf_s=604_800.0, recovery_s=900),
    ]
    plan = first_order(levels, 60.0)
    work_s = plan.periods_s[0] - plan.levels[0].stall_s
    rate = exact_nested(plan.levels, 60.0, work_s, plan.multiples)
    assert plan.ettr < rate < plan.ettr + 0.005


@given(some, st.floats(1, 1e5), st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_the_exact_nested_form_is_a_share_and_falls_with_downtime(
    levels: list[Level], work_s: float, multiples: list[int]
) -> None:
    each = multiples[: len(levels) - 1]
    rates = [exact_nested(levels, downtime_s, work_s, each) for downtime_s in (0.0, 60.0, 6000.0)]
    assert all(0.0 <= rate < 1.0 for rate in rates)
    assert rates == sorted(rates, reverse=True)


def test_without_faults_only_the_stalls_cost() -> None:
    levels = [Level(stall_s=10, mtbf_s=None), Level(stall_s=50, mtbf_s=None)]
    assert exact_nested(levels, 60.0, 100.0, (5,)) == near(500 / 600)


def test_faults_that_strike_without_end_leave_nothing() -> None:
    assert exact_nested([Level(stall_s=1, mtbf_s=1.0, recovery_s=1e6)], 0.0, 10.0) == 0.0
    assert exact_nested([Level(stall_s=1, mtbf_s=1.0)], 0.0, 1e6) == 0.0
    assert exact_nested([Level(stall_s=1, mtbf_s=1.0), Level(stall_s=1, mtbf_s=None)], 0.0, 900.0, (3,)) == 0.0


def test_the_drain_of_several_classes_is_the_one_that_costs_the_same() -> None:
    drains = [(0.7, 0.0), (0.2, 300.0), (0.1, 2400.0)]
    mtbf_s = 10_800.0
    drain_s = drain_over_classes(mtbf_s, drains)
    assert math.exp(-drain_s / mtbf_s) == near(sum(share * math.exp(-s / mtbf_s) for share, s in drains), 1e-12)
    assert drain_over_classes(None, drains) == near(300.0)
    assert drain_over_classes(1e15, drains) == near(300.0, 1e-6)
    assert drain_over_classes(1.0, [(0.5, 1e5), (0.5, 2e5)]) == near(1e5 + math.log(2), 1e-12)
    assert drain_over_classes(3600.0, [(1.0, 90.0), (0.0, 1e9)]) == 90.0


@given(sizes(0, 9), st.lists(st.tuples(st.integers(1, 9), or_nothing(sizes(-1, 6))), min_size=1, max_size=4))
def test_the_drain_of_several_classes_lies_between_the_least_and_the_mean(
    mtbf_s: float, weighted: list[tuple[int, float]]
) -> None:
    total = sum(weight for weight, _ in weighted)
    drains = [(weight / total, drain_s) for weight, drain_s in weighted]
    drain_s = drain_over_classes(mtbf_s, drains)
    mean_s = drain_over_classes(None, drains)
    assert min(s for _, s in drains) * (1 - 1e-12) <= drain_s <= mean_s * (1 + 1e-9) + 1e-9


def test_a_stall_that_pays_for_the_slow_down_of_a_drain() -> None:
    assert effective_stall(5.0, 400.0, 0.02) == near(13.0)


def test_merging_gives_faults_upwards_only() -> None:
    levels = [Level(stall_s=1, mtbf_s=10.0), Level(stall_s=2, mtbf_s=10.0), Level(stall_s=3, mtbf_s=None)]
    assert [level.mtbf_s for level in merged(levels, (1, 2))] == [near(5.0), None]


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("stall_s", lambda: Level(stall_s=-1, mtbf_s=1.0)),
        ("mtbf_s", lambda: Level(stall_s=1, mtbf_s=0.0)),
        ("recovery_s", lambda: Level(stall_s=1, mtbf_s=1.0, recovery_s=math.inf)),
        ("levels", lambda: first_order([])),
        ("levels", lambda: first_order([Level(stall_s=1, mtbf_s=None)])),
        ("levels", lambda: first_order([Level(stall_s=1, mtbf_s=1.0)] * 7)),
        ("stall_s", lambda: first_order([Level(stall_s=0, mtbf_s=1.0)])),
        ("mtbf_s", lambda: nested_periods([Level(stall_s=1, mtbf_s=None)])),
        ("multiples", lambda: exact_nested([Level(stall_s=1, mtbf_s=1.0)], 0.0, 1.0, (2,))),
        ("multiples", lambda: exact_nested([Level(stall_s=1, mtbf_s=1.0)] * 2, 0.0, 1.0, (0,))),
        ("multiples", lambda: exact_nested([Level(stall_s=1, mtbf_s=1.0)] * 2, 0.0, 1.0, (10**9,))),
        ("work_s", lambda: exact_nested([Level(stall_s=1, mtbf_s=1.0)], 0.0, math.nan)),
        ("share", lambda: drain_over_classes(1.0, [(0.5, 1.0)])),
        ("slowdown", lambda: effective_stall(1.0, 1.0, 2.0)),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, call: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.field == field


@given(some, st.floats(0, 600))
def test_the_whole_periods_are_the_best_that_are_these_multiples(levels: list[Level], downtime_s: float) -> None:
    plan = first_order(levels, downtime_s)
    assert plan.whole_ettr == pytest.approx(ettr_at(plan.levels, plan.whole_periods_s, downtime_s), rel=1e-12)
    assert plan.whole_ettr <= plan.ettr + 1e-9
    for period_s, level in zip(plan.whole_periods_s, plan.levels, strict=True):
        assert period_s >= level.drain_s * (1 - 1e-9)
    for multiple, lower, upper in zip(plan.multiples, plan.whole_periods_s, plan.whole_periods_s[1:], strict=False):
        assert upper == pytest.approx(multiple * lower, rel=1e-12)
    for ratio in (0.9, 0.99, 1.01, 1.1):
        other = tuple(period_s * ratio for period_s in plan.whole_periods_s)
        if all(period_s >= level.drain_s for period_s, level in zip(other, plan.levels, strict=True)):
            assert ettr_at(plan.levels, other, downtime_s) <= plan.whole_ettr + 1e-12
