"""What it would take, what to improve first, and the curves of the figures."""

import math
from collections.abc import Callable
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.curves import loss_curve, optimum_curve, periods, rate_curve
from reliability.domain.planner.levers import cheapest_pair, least_standbys, most_nodes, reachable
from reliability.domain.planner.limits import recovery_limit, stall_limit
from reliability.domain.planner.spread import ettr_sd, verdict
from reliability.errors import InvalidInput
from tests.domain.planner.cases import FEW, wide

HARD = Inputs(save_stall_s=300, mtbf_s=10800, recovery_s=900, target=0.9)


def scaled(inputs: Inputs, nodes: int) -> Callable[[int], Inputs]:
    """The inputs of a job on another number of nodes, when every fault loses a node."""
    assert inputs.mtbf_s is not None
    mtbf_s = inputs.mtbf_s
    return lambda count: replace(inputs, mtbf_s=mtbf_s * nodes / count)


def test_the_most_nodes_are_those_at_the_limit_of_the_time_between_faults() -> None:
    limit_s = exact.plan(HARD).limits.mtbf_s
    assert limit_s is not None
    assert HARD.mtbf_s is not None
    most = most_nodes(scaled(HARD, 1024), 1024)
    assert most == most_nodes(scaled(HARD, 1024), 1) == most_nodes(scaled(HARD, 1024), 10**8)
    assert most == math.floor(1024 * HARD.mtbf_s / limit_s)
    assert reachable(replace(HARD, mtbf_s=HARD.mtbf_s * 1024 / most))
    assert not reachable(replace(HARD, mtbf_s=HARD.mtbf_s * 1024 / (most + 1)))


def test_at_the_limit_itself_rounding_takes_no_node_away() -> None:
    limit_s = exact.plan(HARD).limits.mtbf_s
    assert limit_s is not None
    assert all(most_nodes(scaled(replace(HARD, mtbf_s=limit_s / n * 7), n), n) == 7 for n in range(1, 200))


def test_there_is_no_number_of_nodes_without_a_limit_or_below_one() -> None:
    assert most_nodes(lambda _: replace(HARD, mtbf_s=None), 8) is None
    assert most_nodes(scaled(HARD, 8), 8) is not None
    assert most_nodes(scaled(replace(HARD, mtbf_s=8e3), 1), 8) is None


def test_nodes_with_which_stops_take_all_time_are_too_many() -> None:
    stopped = replace(HARD, target=0.5, planned_stops_per_s=1 / 3600)
    most = most_nodes(scaled(stopped, 100), 10**6)
    assert most is not None
    assert reachable(scaled(stopped, 100)(most))
    assert not reachable(scaled(stopped, 100)(most + 1))


@pytest.mark.parametrize("needed", [0, 1, 7, 1023, 1024])
def test_the_least_standbys_are_found(needed: int) -> None:
    easy = replace(HARD, target=0.3)
    assert least_standbys(lambda standbys: easy if standbys >= needed else HARD) == needed


def test_there_is_no_number_of_standbys_when_many_are_not_enough() -> None:
    assert least_standbys(lambda _: HARD) is None


def effort(inputs: Inputs, stall_s: float, recovery_s: float) -> float:
    return math.log(inputs.save_stall_s / stall_s) + math.log(inputs.recovery_s / recovery_s)


@FEW
@given(wide(stops=True))
def test_the_cheapest_pair_reaches_the_target_with_the_least_effort(inputs: Inputs) -> None:
    pair = cheapest_pair(inputs)
    if pair is None:
        ideal = replace(inputs, save_stall_s=0.0, recovery_s=0.0)
        assert not reachable(ideal) or inputs.recovery_s == 0 or exact.best(ideal)[1] < inputs.target * (1 + 1e-9)
        return
    if reachable(inputs):
        assert (pair.save_stall_s, pair.recovery_s) == (inputs.save_stall_s, inputs.recovery_s)
        return
    assert 0 < pair.save_stall_s <= inputs.save_stall_s
    assert pair.recovery_s <= inputs.recovery_s
    both = replace(inputs, save_stall_s=pair.save_stall_s, recovery_s=pair.recovery_s)
    assert exact.best(both)[1] == pytest.approx(inputs.target, rel=1e-9)
    if inputs.recovery_s == 0:
        return
    least = effort(inputs, pair.save_stall_s, pair.recovery_s)
    for ratio in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        recovery_s = min(pair.recovery_s * ratio, inputs.recovery_s)
        stall_s = stall_limit(replace(inputs, recovery_s=recovery_s))
        if stall_s:
            assert effort(inputs, min(stall_s, inputs.save_stall_s), recovery_s) >= least - 1e-6


def test_a_pair_with_one_at_0_is_the_other_alone() -> None:
    stall = replace(HARD, recovery_s=0.0, save_stall_s=3000)
    pair = cheapest_pair(stall)
    assert pair is not None
    assert astuple(pair) == (stall_limit(stall), 0.0)
    recovery = replace(HARD, save_stall_s=0.0, recovery_s=3000)
    pair = cheapest_pair(recovery)
    assert pair is not None
    assert astuple(pair) == (0.0, recovery_limit(recovery))


def test_there_is_no_pair_when_downtime_alone_is_too_much() -> None:
    assert cheapest_pair(replace(HARD, downtime_s=3000)) is None
    assert cheapest_pair(replace(HARD, mtbf_s=None, cluster_availability=0.5)) is None


@FEW
@given(wide(stops=True), st.integers(2, 40), st.one_of(st.none(), st.floats(1e-3, 1e6)))
def test_a_curve_rises_in_period_and_covers_what_it_must(inputs: Inputs, points: int, present_s: float | None) -> None:
    drawn = periods(inputs, points, present_s)
    plan = exact.plan(inputs)
    assert len(drawn) == points
    assert list(drawn) == sorted(set(drawn))
    covered = [plan.period_s, *(plan.interval_s or ()), present_s]
    for value in covered:
        if value is not None and value >= max(inputs.save_stall_s, 1e-9):
            assert drawn[0] <= value <= drawn[-1]
    for (period_s, rate, lower), (other_s, shares) in zip(
        rate_curve(inputs, points, present_s), loss_curve(inputs, points, present_s), strict=True
    ):
        assert period_s == other_s
        assert 0 <= rate == pytest.approx(shares.useful, rel=1e-9, abs=1e-14)
        assert lower is None or 0 <= lower <= rate + 1e-15


@pytest.mark.parametrize("changed", [{"mtbf_s": None}, {"save_stall_s": 0.0}, {"save_stall_s": 0.0, "mtbf_s": None}])
def test_corner_cases_have_curves_too(changed: dict[str, float | None]) -> None:
    inputs = replace(HARD, **changed)  # type: ignore[arg-type]
    assert len(rate_curve(inputs, 5)) == len(loss_curve(inputs, 5)) == 5
    assert len(optimum_curve(inputs, "mtbf_s", 5)) == len(optimum_curve(inputs, "save_stall_s", 5)) == 5


def test_the_best_period_and_rate_move_with_what_is_varied() -> None:
    by_faults, by_stall = optimum_curve(HARD, "mtbf_s", 9), optimum_curve(HARD, "save_stall_s", 9)
    assert by_faults[4] == pytest.approx((10800, *exact.best(HARD)), rel=1e-9)
    assert [rate for _, _, rate in by_faults] == sorted(rate for _, _, rate in by_faults)
    assert [rate for _, _, rate in by_stall] == sorted((rate for _, _, rate in by_stall), reverse=True)
    assert (by_stall[0][0], by_stall[-1][0]) == (30.0, 3000.0)


def test_a_curve_of_one_point_is_refused() -> None:
    with pytest.raises(InvalidInput, match="points"):
        rate_curve(HARD, 1)
    with pytest.raises(InvalidInput, match="points"):
        optimum_curve(HARD, "mtbf_s", 1)


@given(wide(stops=True), st.floats(1, 100))
def test_four_times_the_window_halves_the_spread(inputs: Inputs, ratio: float) -> None:
    period_s, window_s = exact.plan(inputs).period_s, (inputs.mtbf_s or 1.0) * ratio
    assert period_s is not None
    sd = ettr_sd(inputs, period_s, window_s)
    assert sd > 0
    assert ettr_sd(inputs, period_s, 4 * window_s) == pytest.approx(sd / 2, rel=1e-12)


def test_without_faults_nothing_is_left_to_chance() -> None:
    assert ettr_sd(replace(HARD, mtbf_s=None), 1000, 86400) == 0.0
    assert ettr_sd(HARD, HARD.save_stall_s, 86400) == 0.0


@pytest.mark.parametrize("window_s", [0, -1, math.nan])
def test_a_window_of_nothing_is_refused(window_s: float) -> None:
    with pytest.raises(InvalidInput, match="window_s"):
        ettr_sd(HARD, 1000, window_s)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (0.938, "as planned"),
        (0.9301, "as planned"),
        (0.9299, "below plan"),
        (0.9539, "as planned"),
        (0.96, "above plan"),
    ],
)
def test_a_plan_is_missed_only_beyond_two_standard_deviations(measured: float, told: str) -> None:
    assert verdict(0.942, measured, 0.006) == told
