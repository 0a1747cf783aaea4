"""Standbys: loss formulas and tails against known cases, simulations and each other."""

import math
from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.spares import (
    Law,
    Spares,
    binomial_standbys,
    binomial_tail,
    erlang_b,
    mean_downtime,
    offered_load,
    poisson_tail,
    spares,
    standbys_for,
)
from reliability.errors import InvalidInput
from tests.domain.planner.models import MODELS, near

HOUR_S, DAY_S = 3600.0, 86_400.0
CASES = {case["name"]: case for case in MODELS["spares"]}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
LAWS: tuple[Law, ...] = get_args(Law)

loads = st.floats(-3, 3).map(lambda power: 10.0**power)
places = st.integers(0, 1500)


def given_spares(case: dict[str, Any]) -> Spares:
    load = offered_load(case["nodes"], case["node_mtbf_days"] * DAY_S, case["repair_h"] * HOUR_S)
    return spares(load, case["standbys"], case["repair_h"] * HOUR_S)


@every_case
def test_what_the_standbys_give_agrees(case: dict[str, Any]) -> None:
    there = given_spares(case)
    assert there.mean_wait_s / HOUR_S == near(case["mean_wait_h"])
    for name in ("load", "p_no_standby", "share_short", "fleet_p_no_standby", "fleet_share_short"):
        assert getattr(there, name) == near(case[name])


@every_case
@pytest.mark.parametrize("law", LAWS)
def test_the_standbys_needed_agree(case: dict[str, Any], law: Law) -> None:
    assert standbys_for(given_spares(case).load, 0.01, law) == case["for_1_percent"][law]


@every_case
def test_simulated_repairs_of_either_law_miss_as_often_as_told(case: dict[str, Any]) -> None:
    there = given_spares(case)
    for missed, error in case["simulated"]["job"]:
        assert there.p_no_standby == pytest.approx(missed, abs=4 * error)
    missed, error = case["simulated"]["fleet"]
    assert there.fleet_p_no_standby == pytest.approx(missed, abs=4 * error)


def exact_erlang(count: int, load: Fraction) -> Fraction:
    terms = [Fraction(1)]
    for k in range(1, count + 1):
        terms.append(terms[-1] * load / k)
    return terms[-1] / sum(terms)


@pytest.mark.parametrize("load", [Fraction(1, 1000), Fraction(2), Fraction(13, 2), Fraction(40), Fraction(200)])
@pytest.mark.parametrize("count", [0, 1, 7, 40, 120])
def test_the_loss_formula_agrees_with_fractions(count: int, load: Fraction) -> None:
    assert erlang_b(count, float(load)) == near(float(exact_erlang(count, load)), 1e-13)


@given(places, loads)
def test_a_job_that_pauses_misses_no_more_often_than_a_fleet_that_runs_on(count: int, load: float) -> None:
    assert 0.0 <= erlang_b(count, load) <= poisson_tail(count, load) * (1 + 1e-9) <= 1 + 1e-9


@given(places, loads, st.integers(1, 50), st.floats(1, 3))
def test_more_places_miss_less_and_more_load_misses_more(count: int, load: float, more: int, times: float) -> None:
    for tail in (erlang_b, poisson_tail):
        assert tail(count + more, load) <= tail(count, load) * (1 + 1e-9)
        assert tail(count, load * times) >= tail(count, load) * (1 - 1e-9)


@given(loads, st.floats(1e-6, 0.5), st.sampled_from(LAWS))
def test_the_standbys_needed_are_enough_and_one_less_is_not(load: float, probability: float, law: Law) -> None:
    tail = erlang_b if law.startswith("erlang") else poisson_tail
    over = 1 if law.endswith("time") else 0
    count = standbys_for(load, probability, law)
    assert tail(count + over, load) <= probability
    assert count == 0 or tail(count + over - 1, load) > probability


def test_a_load_of_a_hundred_thousand_is_counted_too() -> None:
    load = 1e5
    assert erlang_b(100_000, load) == near(1 / (math.sqrt(math.pi * load / 2) + 2 / 3), 1e-6)
    assert poisson_tail(100_000, load) == pytest.approx(0.5, abs=2e-3)
    count = standbys_for(load, 0.01, "poisson_failures")
    assert poisson_tail(count, load) <= 0.01 < poisson_tail(count - 1, load)
    assert erlang_b(10**9, load) == 0.0


def test_no_load_needs_no_standby() -> None:
    assert erlang_b(0, 0.0) == 1.0
    assert erlang_b(1, 0.0) == 0.0
    assert [standbys_for(0.0, 0.01, law) for law in LAWS] == [0, 0, 0, 0]


def exact_binomial(count: int, machines: int, p: Fraction) -> Fraction:
    chosen = range(count, machines + 1)
    return sum((math.comb(machines, k) * p**k * (1 - p) ** (machines - k) for k in chosen), Fraction(0))


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(3, 100), Fraction(1, 2), Fraction(99, 100)])
@pytest.mark.parametrize(("count", "machines"), [(0, 5), (1, 1), (2, 128), (30, 60), (59, 60), (61, 60), (12, 400)])
def test_the_binomial_tail_agrees_with_fractions(count: int, machines: int, p: Fraction) -> None:
    assert binomial_tail(count, machines, float(p)) == near(float(exact_binomial(count, machines, p)), 1e-11)


def test_the_ends_of_a_share_leave_nothing_to_chance() -> None:
    assert [binomial_tail(k, 3, 0.0) for k in (0, 1, 4)] == [1.0, 0.0, 0.0]
    assert [binomial_tail(k, 3, 1.0) for k in (0, 3, 4)] == [1.0, 1.0, 0.0]


@given(st.integers(1, 3000), st.floats(0.0001, 0.2), st.floats(0.5, 0.9999))
def test_binomial_standbys_are_the_least_that_cover_the_quantile(machines: int, p: float, quantile: float) -> None:
    count = binomial_standbys(machines, p, quantile)
    assert binomial_tail(count + 1, machines, p) <= 1 - quantile
    assert count == 0 or binomial_tail(count, machines, p) > 1 - quantile


def test_many_machines_that_rarely_fail_follow_poisson() -> None:
    assert binomial_tail(15, 100_000, 6.656e-5) == near(poisson_tail(15, 6.656), 1e-3)


def test_the_warm_standbys_of_a_published_fleet_follow_from_one_share() -> None:
    case = MODELS["warm_standbys"]
    counts = [binomial_standbys(machines, case["p"], case["quantile"]) for machines in case["machines"]]
    assert counts == case["standbys"]


def test_a_fault_waits_for_repair_as_often_as_no_standby_is_left() -> None:
    there = spares(6.656, 10, DAY_S)
    downtime_s = mean_downtime(120.0, there, DAY_S)
    assert downtime_s == near((1 - there.p_no_standby) * 120 + there.p_no_standby * DAY_S / 11)
    assert mean_downtime(120.0, spares(6.656, 60, DAY_S), DAY_S) == near(120.0)


def test_ten_standbys_for_a_thousand_nodes_cost_over_three_points() -> None:
    node_mtbf_s = 153.846153846 * DAY_S
    there = spares(offered_load(1024, node_mtbf_s, DAY_S), 10, DAY_S)
    rates = [
        exact.plan(
            Inputs(save_stall_s=30, mtbf_s=node_mtbf_s / 1024, recovery_s=300, downtime_s=downtime_s, target=0.9)
        ).ettr_max
        for downtime_s in (120.0, mean_downtime(120.0, there, DAY_S))
    ]
    assert rates[0] - rates[1] == pytest.approx(0.034, abs=0.001)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("places", lambda: erlang_b(-1, 1.0)),
        ("load", lambda: erlang_b(1, math.nan)),
        ("load", lambda: standbys_for(1e12, 0.01)),
        ("count", lambda: poisson_tail(-1, 1.0)),
        ("p", lambda: binomial_tail(1, 2, 1.5)),
        ("nodes", lambda: offered_load(-1, 1.0, 1.0)),
        ("node_mtbf_s", lambda: offered_load(1, 0.0, 1.0)),
        ("repair_s", lambda: spares(1.0, 1, -1.0)),
        ("probability", lambda: standbys_for(1.0, 0.0)),
        ("law", lambda: standbys_for(1.0, 0.01, "cauchy")),  # type: ignore[arg-type]
        ("quantile", lambda: binomial_standbys(10, 0.1, 1.0)),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, call: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.field == field
