"""Rates from few faults: intervals, what they say of a target, and how a rate grows with the job."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.rates import (
    Observed,
    Split,
    fleet_prior,
    garwood,
    job_rate,
    node_rate,
    posterior,
    split_common,
)
from reliability.errors import InvalidInput
from tests.domain.planner.models import MODELS, near

HOUR_S, DAY_S = 3600.0, 86_400.0
CASES = {case["name"]: case for case in MODELS["rates"]}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

observations = st.builds(Observed, st.integers(0, 10_000), st.floats(1, 1e9))
levels = st.floats(0.01, 0.999)


def seen(case: dict[str, Any]) -> Observed:
    return Observed(case["faults"], case["exposure_h"] * HOUR_S)


def inputs(case: dict[str, Any], rate_per_s: float) -> Inputs:
    times = {name: case[name] for name in ("save_stall_s", "recovery_s", "target")}
    return Inputs(mtbf_s=1 / rate_per_s, **times)


@every_case
def test_the_rate_and_its_intervals_agree(case: dict[str, Any]) -> None:
    rate = posterior(seen(case))
    assert rate.mean_per_s * HOUR_S == near(case["mean_per_h"])
    assert rate.quantile(0.5) * HOUR_S == near(case["median_per_h"])
    assert [end * HOUR_S for end in rate.interval(0.9)] == [near(end) for end in case["interval_per_h"]]
    assert [end * HOUR_S for end in garwood(seen(case), 0.9)] == [near(end) for end in case["garwood_per_h"]]
    assert rate.no_fault_probability(DAY_S) == near(case["no_fault_in_a_day"])


@every_case
def test_the_chance_that_a_target_is_attainable_agrees(case: dict[str, Any]) -> None:
    rate = posterior(seen(case))
    least_mtbf_s = exact.plan(inputs(case, rate.mean_per_s)).limits.mtbf_s
    assert least_mtbf_s is not None
    assert HOUR_S / least_mtbf_s == near(case["most_faults_per_h"])
    assert rate.probability_below(1 / least_mtbf_s) == near(case["attainable"])


@every_case
def test_the_interval_maps_to_periods_and_rates_end_by_end(case: dict[str, Any]) -> None:
    rate = posterior(seen(case))
    assert math.sqrt(2 * case["save_stall_s"] / rate.mean_per_s) == near(case["period_s"])
    low, high = rate.interval(0.9)
    assert [math.sqrt(2 * case["save_stall_s"] / end) for end in (high, low)] == [near(s) for s in case["periods_s"]]
    assert [exact.plan(inputs(case, end)).ettr_max for end in (high, low)] == [near(value) for value in case["ettr"]]


def test_a_common_part_of_the_rate_does_not_grow_with_the_job() -> None:
    case = MODELS["scaling"]
    rate = posterior(Observed(case["faults"], case["days"] * DAY_S)).mean_per_s
    per_node = node_rate(rate, case["common_per_day"] / DAY_S, case["nodes"])
    assert per_node * DAY_S == near(case["per_node_day"])
    larger = job_rate(case["common_per_day"] / DAY_S, per_node, case["larger"])
    assert larger * DAY_S == near(case["job_per_day"])
    naive = job_rate(0.0, node_rate(rate, 0.0, case["nodes"]), case["larger"])
    assert naive * DAY_S == near(case["naive_per_day"])


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(1e4, 1e9), st.floats(1e4, 1e9), st.data())
def test_two_sizes_are_split_into_parts_that_are_never_negative(
    few: int, more: int, first_s: float, second_s: float, data: st.DataObject
) -> None:
    seen_few = Observed(data.draw(st.integers(0, 500)), first_s)
    seen_many = Observed(data.draw(st.integers(0, 500)), second_s)
    split = split_common((few, seen_few), (few + more, seen_many))
    assert split == split_common((few + more, seen_many), (few, seen_few))
    assert split.common_per_s >= 0
    assert split.node_per_s >= 0
    if split.common_per_s and split.node_per_s:
        assert split.job_rate(few) == near(posterior(seen_few).mean_per_s, 1e-6)
        assert split.job_rate(few + more) == near(posterior(seen_many).mean_per_s, 1e-6)


def test_more_faults_on_fewer_nodes_say_that_all_is_common() -> None:
    split = split_common((8, Observed(9, DAY_S)), (80, Observed(1, DAY_S)))
    assert split == Split(common_per_s=near(10.5 / (2 * DAY_S)), node_per_s=0.0)


def test_a_rate_that_grows_faster_than_the_job_says_that_nothing_is_common() -> None:
    split = split_common((10, Observed(0, DAY_S)), (20, Observed(30, DAY_S)))
    assert split == Split(common_per_s=0.0, node_per_s=near(30.5 / (30 * DAY_S)))


@given(observations, levels)
def test_intervals_are_in_order_and_hold_the_median(observed: Observed, level: float) -> None:
    rate = posterior(observed)
    low, high = rate.interval(level)
    assert 0 < low < rate.quantile(0.5) < high
    assert rate.probability_below(high) - rate.probability_below(low) == near(level, 1e-8)
    exact_low, exact_high = garwood(observed, level)
    assert exact_low <= low
    assert high <= exact_high


@given(observations, st.floats(0.05, 0.5), st.floats(0.51, 0.99))
def test_a_higher_level_gives_a_wider_interval(observed: Observed, lower: float, higher: float) -> None:
    (inner_low, inner_high), (low, high) = (posterior(observed).interval(level) for level in (lower, higher))
    assert low <= inner_low <= inner_high <= high


@given(observations, st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_chance_of_no_fault_falls_with_time(observed: Observed, t_s: float, more_s: float) -> None:
    rate = posterior(observed)
    assert 1.0 >= rate.no_fault_probability(t_s) >= rate.no_fault_probability(t_s + more_s) >= 0.0
    assert rate.no_fault_probability(0.0) == 1.0


def test_the_fleet_prior_is_the_fleets_rate_until_something_is_seen() -> None:
    prior = fleet_prior(250)
    nothing = posterior(Observed(0, 0.0), prior)
    assert nothing.mean_per_s * DAY_S == near(250 * 4e-3)
    assert nothing.probability_below(1 / DAY_S) == near(-math.expm1(-1.0))
    assert nothing.no_fault_probability(DAY_S) == near(0.5)
    much = posterior(Observed(500, 1000 * DAY_S), prior)
    assert much.mean_per_s * DAY_S == near(501 / 1001)


def test_a_stronger_prior_of_another_fleet_has_the_same_mean() -> None:
    rate = posterior(Observed(0, 0.0), fleet_prior(100, per_node_day=6.5e-3, shape=4.0))
    assert rate.mean_per_s * DAY_S == near(0.65)
    assert rate.shape == 4.0


def test_no_faults_never_mean_a_rate_of_zero() -> None:
    rate = posterior(Observed(0, 30 * DAY_S))
    assert rate.mean_per_s > rate.quantile(0.05) > 0
    assert rate.probability_below(0.0) == rate.probability_below(-1.0) == 0.0


def test_nothing_seen_and_nothing_believed_gives_no_rate() -> None:
    with pytest.raises(InvalidInput, match="exposure_s"):
        posterior(Observed(0, 0.0))
    with pytest.raises(InvalidInput, match="exposure_s"):
        garwood(Observed(0, 0.0))


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("faults", lambda: Observed(-1, 1.0)),
        ("faults", lambda: Observed(10**400, 1.0)),
        ("exposure_s", lambda: Observed(1, math.nan)),
        ("nodes", lambda: fleet_prior(0)),
        ("per_node_day", lambda: fleet_prior(1, per_node_day=math.inf)),
        ("level", lambda: posterior(Observed(1, 1.0)).interval(1.0)),
        ("level", lambda: garwood(Observed(1, 1.0), 0.0)),
        ("t_s", lambda: posterior(Observed(1, 1.0)).no_fault_probability(-1.0)),
        ("nodes", lambda: node_rate(1.0, 0.0, 0)),
        ("node_per_s", lambda: job_rate(0.0, -1.0, 1)),
        ("nodes", lambda: split_common((5, Observed(1, 1.0)), (5, Observed(1, 1.0)))),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, call: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.field == field
