"""What does the check of a plan answer, and what does it refuse?"""

import math
from dataclasses import astuple, replace

import pytest

from reliability.domain.planner import Inputs
from reliability.errors import InvalidInput
from reliability.simulation import Check, Exponential, HyperExponential, LogNormal, Standbys, Weibull, check
from tests.simulation.known import job

PLAIN = job(60, 10800, 300, 120)


def comparable(found: Check) -> Check:
    return replace(found, seconds=0.0)


def test_the_same_seed_gives_the_same_answer_and_another_one_another() -> None:
    first, again, other = (check(PLAIN, 1800, 20_000, seed=seed) for seed in (7, 7, 8))
    assert comparable(first) == comparable(again)
    assert first.ettr != other.ettr


@pytest.mark.parametrize(
    "inputs",
    [
        PLAIN,
        replace(PLAIN, drain_s=600, cluster_availability=0.9, planned_stops_per_s=1 / 86400),
        replace(PLAIN, mtbf_s=None, planned_stops_per_s=1 / 86400),
        job(0, 100, 500, 50),
    ],
)
def test_shares_add_up_to_one_and_the_useful_one_is_the_rate(inputs: Inputs) -> None:
    found = check(inputs, 1800, 20_000)
    assert sum(astuple(found.shares)) == pytest.approx(1, rel=1e-12)
    assert min(astuple(found.shares)) >= 0
    assert found.shares.useful == found.ettr


def test_without_faults_the_answer_is_exact() -> None:
    calm = Inputs(save_stall_s=30, mtbf_s=None, recovery_s=600, downtime_s=120, target=0.9)
    found = check(calm, 300)
    assert (found.ettr, found.se, found.failures) == (pytest.approx(0.9, rel=1e-15), 0, 0)
    stopped = check(replace(calm, planned_stops_per_s=1 / 7200, cluster_availability=0.5), 300)
    assert (stopped.ettr, stopped.se) == (pytest.approx(0.9 * 0.9 * 0.5, rel=1e-12), 0)
    assert stopped.shares.downtime == pytest.approx(0.5 + 0.5 / 60, rel=1e-12)


def test_the_period_that_is_kept_up_is_told() -> None:
    assert check(PLAIN, 600, 1000).period_s == 600
    assert check(replace(PLAIN, drain_s=900), 600, 1000).period_s == 900


def test_more_failures_make_it_surer() -> None:
    few, many = check(PLAIN, 1800, 10_000), check(PLAIN, 1800, 1_000_000)
    assert few.se / many.se == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize("failures", [100, 101, 12_345])
def test_at_least_as_many_failures_are_simulated_as_asked_for(failures: int) -> None:
    assert failures <= check(PLAIN, 1800, failures).failures <= 1.2 * failures + 100


@pytest.mark.parametrize("stall_ratio", [1e-9, 1e-6, 1e-3, 1, 10])
@pytest.mark.parametrize("mtbf_s", [1e-90, 1e-3, 1e5, 1e90])
@pytest.mark.parametrize("others", [0, 1e-3, 30])
def test_extreme_times_give_finite_answers(stall_ratio: float, mtbf_s: float, others: float) -> None:
    stall = stall_ratio * mtbf_s
    inputs = job(stall, mtbf_s, others * mtbf_s, others * mtbf_s, others * stall)
    found = check(inputs, 2 * stall + math.sqrt(stall * mtbf_s), 2000)
    assert all(0 <= share <= 1 for share in astuple(found.shares))
    assert 0 < found.se < 1
    assert sum(astuple(found.shares)) == pytest.approx(1, rel=1e-9)


def test_a_run_in_which_nothing_is_kept_does_not_look_certain() -> None:
    found = check(job(10, 1, 0), 30, 1000)
    assert found.ettr == 0
    assert found.se == pytest.approx(20 / found.simulated_s)


def test_planned_stops_far_more_frequent_than_faults_end_with_the_time_limit() -> None:
    inputs = replace(job(10, 1e12, 60), planned_stops_per_s=1 / 3600)
    found = check(inputs, 600, 100_000, limit_s=0.2)
    assert found.seconds < 5
    assert found.ettr == pytest.approx(590 / 600 * (1 - 60 / 3600), abs=4 * found.se + 1e-3)


def test_the_time_limit_ends_it_with_fewer_failures() -> None:
    found = check(PLAIN, 1800, 5_000_000, limit_s=0.02)
    assert 0 < found.failures < 5_000_000
    assert found.seconds < 2


WRONG = {
    "period_s": [None, 0, -1, 60, 59.9, math.nan, math.inf, "600", True, 10**400],
    "failures": [0, 99, -5, 5_000_001, 1e5, True, "many", 10**400],
    "seed": [-1, 1.5, None, 2**70],
    "limit_s": [0, -1, math.nan, math.inf, 1e9, "soon"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_argument_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check(PLAIN, **{"period_s": 1800, name: value})  # type: ignore[arg-type]
    assert refused.value.field == name


class Loose:
    """Inputs that nobody has checked."""

    def __init__(self, **values: object) -> None:
        self.__dict__ = {name: getattr(PLAIN, name) for name in Inputs.__dataclass_fields__} | values


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "5", True, 10**400])
@pytest.mark.parametrize(
    "name",
    ["save_stall_s", "mtbf_s", "recovery_s", "downtime_s", "drain_s", "cluster_availability", "planned_stops_per_s"],
)
def test_a_wrong_input_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check(Loose(**{name: value}), 1800, 1000)  # type: ignore[arg-type]
    assert refused.value.field == name


def test_planned_stops_are_refused_with_a_law_that_has_a_memory() -> None:
    inputs = replace(PLAIN, planned_stops_per_s=1 / 86400)
    assert check(inputs, 1800, 1000, law=Exponential(10800)).failures >= 1000
    with pytest.raises(InvalidInput, match="clock"):
        check(inputs, 1800, 1000, law=Weibull(0.7, 10800))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential(0),
        lambda: Weibull(0, 1),
        lambda: Weibull(math.nan, 1),
        lambda: Weibull(1, -1),
        lambda: HyperExponential(((0.5, 1.0), (0.4, 2.0))),
        lambda: HyperExponential(()),
        lambda: LogNormal(1, 0),
        lambda: LogNormal(1, 50),
        lambda: Standbys(count=-1, repair=Exponential(1)),
        lambda: Standbys(count=1, repair=Exponential(1), node_share=2),
    ],
)
def test_impossible_laws_are_refused(make: object) -> None:
    with pytest.raises(InvalidInput):
        make()  # type: ignore[operator]
