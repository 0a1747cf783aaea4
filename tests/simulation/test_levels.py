"""Are the formulas of several levels right? Against a simulator of copies, classes of failures and running drains."""

import math
from itertools import pairwise

import pytest

from reliability.domain.planner import exact, levels
from reliability.errors import InvalidInput
from reliability.simulation import Check, Exponential, Level, check, check_levels
from tests.simulation.agreement import assert_agree
from tests.simulation.known import job

TWO = [
    Level(extra_stall_s=4, mtbf_s=7200, recovery_s=60),
    Level(extra_stall_s=60, mtbf_s=36000, recovery_s=600, every=9),
]
THREE = [
    Level(extra_stall_s=2, mtbf_s=20000, recovery_s=30),
    Level(extra_stall_s=15, mtbf_s=60000, recovery_s=200, every=4),
    Level(extra_stall_s=90, mtbf_s=300000, recovery_s=900, every=24),
]
HARSH = [
    Level(extra_stall_s=10, mtbf_s=600, recovery_s=200),
    Level(extra_stall_s=60, mtbf_s=1500, recovery_s=500, every=2),
    Level(extra_stall_s=5, mtbf_s=4000, recovery_s=50, every=6),
]
ASYNC = [
    Level(extra_stall_s=3, mtbf_s=14400, recovery_s=60),
    Level(extra_stall_s=1, mtbf_s=86400, recovery_s=400, every=5, drain_s=600),
]


def planned(simulated: list[Level]) -> list[levels.Level]:
    return [
        levels.Level(
            stall_s=level.extra_stall_s, mtbf_s=level.mtbf_s, recovery_s=level.recovery_s, drain_s=level.drain_s
        )
        for level in simulated
    ]


def multiples(simulated: list[Level]) -> list[int]:
    return [above.every // below.every for below, above in pairwise(simulated)]


def simulated(chosen: list[Level], work_s: float, downtime_s: float, failures: int, seed: int = 1) -> Check:
    return check_levels(chosen, work_s, downtime_s, failures, seed, 100)


def test_two_levels_repeat_what_another_simulator_found() -> None:
    found = simulated(TWO, 236, 30, 200_000, 2)
    assert_agree(found.ettr, found.se, 0.883499845228, 1.29722e-04)
    assert_agree(found.ettr, found.se, 0.88346368811)


def test_a_memory_copy_and_a_drained_one_repeat_what_another_simulator_found() -> None:
    found = simulated(ASYNC, 417, 60, 200_000, 2)
    assert_agree(found.ettr, found.se, 0.945126551734, 1.27089e-04)
    assert found.ettr == pytest.approx(levels.ettr_with_aborted_drains(planned(ASYNC), (420, 2100), 60), abs=0.004)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "work_s", "downtime_s"),
    [(TWO, 236, 30), (TWO, 900, 0), (THREE, 300, 60), (THREE, 1500, 600), (HARSH, 120, 100), (HARSH, 30, 0)],
    ids=["two", "two, long work", "three", "three, long work", "harsh", "harsh, short work"],
)
def test_the_exact_nested_model_is_simulated(chosen: list[Level], work_s: float, downtime_s: float) -> None:
    found = simulated(chosen, work_s, downtime_s, 1_000_000, 4)
    assert_agree(found.ettr, found.se, levels.exact_nested(planned(chosen), downtime_s, work_s, multiples(chosen)))


def test_one_level_is_the_job_of_the_exact_model() -> None:
    for drain_s in (0.0, 250.0):
        one = [Level(extra_stall_s=60, mtbf_s=10800, recovery_s=300, drain_s=drain_s)]
        found = simulated(one, 1740, 120, 200_000)
        assert_agree(found.ettr, found.se, exact.ettr_at(job(60, 10800, 300, 120, drain_s), 1800))


@pytest.mark.slow
def test_levels_that_are_the_same_are_one_job() -> None:
    same = [Level(extra_stall_s=stall, mtbf_s=21600, recovery_s=300) for stall in (60, 0)]
    found = simulated(same, 1740, 120, 500_000, 3)
    one = check(job(60, 10800, 300, 120), 1800, 500_000, 9)
    assert_agree(found.ettr, found.se, one.ettr, one.se)


@pytest.mark.slow
def test_long_drains_that_frequent_failures_abort_stay_near_the_corrected_formula() -> None:
    """Half an hour of drain with a failure each two hours: the plain first order promises 0.8 points too much."""
    chosen = [
        Level(extra_stall_s=3, mtbf_s=7200, recovery_s=60),
        Level(extra_stall_s=1, mtbf_s=172800, recovery_s=400, every=12, drain_s=1800),
    ]
    found = simulated(chosen, 297, 60, 1_500_000, 5)
    periods = (300.0, 3600.0)
    plain = levels.ettr_at(planned(chosen), periods, 60)
    corrected = levels.ettr_with_aborted_drains(planned(chosen), periods, 60)
    assert plain > corrected
    assert found.ettr == pytest.approx(corrected, abs=0.004)


@pytest.mark.slow
def test_first_order_levels_stay_near_where_failures_are_rare() -> None:
    """Failures ten times rarer than in a large job: what first order leaves out is below a tenth of a point."""
    rare = [
        Level(extra_stall_s=3, mtbf_s=144000, recovery_s=60),
        Level(extra_stall_s=1, mtbf_s=864000, recovery_s=400, every=5, drain_s=600),
    ]
    found = simulated(rare, 1197, 60, 1_000_000)
    assert found.ettr == pytest.approx(levels.ettr_with_aborted_drains(planned(rare), (1200, 6000), 60), abs=0.001)


@pytest.mark.slow
def test_a_drain_that_survives_lower_failures_loses_less_than_one_that_they_end() -> None:
    survives = [
        ASYNC[0],
        Level(extra_stall_s=1, mtbf_s=86400, recovery_s=400, every=5, drain_s=600, drain_survives=True),
    ]
    ended, gone_on = (simulated(chosen, 417, 60, 400_000, 6) for chosen in (ASYNC, survives))
    assert gone_on.ettr - ended.ettr > 4 * math.hypot(ended.se, gone_on.se)


@pytest.mark.slow
@pytest.mark.parametrize("node_share", [0.1, 0.5, 0.9])
def test_one_drain_stands_for_the_drains_of_several_classes(node_share: float) -> None:
    """Each failure waits for the copy that its class needs; copies on their way survive failures that need less.

    The formula forgets that a drain may still run when the next failure strikes: second order in drain / MTBF.
    """
    mtbf_s, drain_s = 20000.0, 400.0
    chosen = [
        Level(extra_stall_s=20, mtbf_s=mtbf_s / (1 - node_share), recovery_s=300),
        Level(extra_stall_s=0, mtbf_s=mtbf_s / node_share, recovery_s=300, drain_s=drain_s, drain_survives=True),
    ]
    found = simulated(chosen, 980, 100, 1_500_000, 8)
    one = levels.drain_over_classes(mtbf_s, [(1 - node_share, 0.0), (node_share, drain_s)])
    expected = exact.ettr_at(job(20, mtbf_s, 300, 100, one), 1000)
    assert abs(found.ettr - expected) <= 4 * found.se + (drain_s / mtbf_s) ** 2


def test_shares_of_levels_add_up_and_seeds_repeat() -> None:
    first, again = (simulated(THREE, 300, 60, 50_000, 3) for _ in range(2))
    assert (first.ettr, first.se, first.shares) == (again.ettr, again.se, again.shares)
    shares = first.shares
    assert shares.useful + shares.saving + shares.rollback + shares.recovery + shares.downtime == pytest.approx(1)
    assert first.period_s == 302


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"levels": []}, "levels"),
        ({"levels": [TWO[1]]}, "every"),
        ({"levels": [TWO[0], TWO[1], Level(extra_stall_s=1, mtbf_s=1e5, recovery_s=0, every=10)]}, "every"),
        ({"levels": [Level(extra_stall_s=-1, mtbf_s=1e5, recovery_s=0)]}, "extra_stall_s"),
        ({"levels": [Level(extra_stall_s=1, mtbf_s=0, recovery_s=0)]}, "mtbf_s"),
        ({"levels": [Level(extra_stall_s=1, mtbf_s=math.nan, recovery_s=0)]}, "mtbf_s"),
        ({"levels": [Level(extra_stall_s=1, mtbf_s=1e5, recovery_s=0, drain_s=300)]}, "drain_s"),
        ({"work_s": 0}, "work_s"),
        ({"downtime_s": -1}, "downtime_s"),
        ({"failures": 10}, "failures"),
        ({"failures": 200}, "failures"),
    ],
)
def test_impossible_levels_are_refused_by_name(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_levels(**{"levels": TWO, "work_s": 236, **change})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_the_time_limit_ends_levels_with_whole_cycles() -> None:
    found = check_levels(TWO, 236, 30, 5_000_000, limit_s=0.3)
    assert 1000 < found.failures < 5_000_000
    assert_agree(found.ettr, found.se, 0.88346368811)


def test_a_top_level_too_rare_for_the_time_limit_is_refused() -> None:
    rare = [TWO[0], Level(extra_stall_s=60, mtbf_s=7200 * 1e5, recovery_s=600, every=9)]
    with pytest.raises(InvalidInput, match="limit_s"):
        check_levels(rare, 236, 30, 5_000_000, limit_s=0.2)


def test_an_exponential_law_is_the_same_as_none() -> None:
    inputs = job(60, 10800, 300, 120)
    assert check(inputs, 1800, 1000, law=Exponential(10800)).ettr == check(inputs, 1800, 1000).ettr
