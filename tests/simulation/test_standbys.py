"""Are the formulas of standbys right, whatever the law of the repair?"""

import math
from dataclasses import replace

import pytest

from reliability.domain.planner import exact, spares
from reliability.errors import InvalidInput
from reliability.simulation import Constant, Exponential, Law, LogNormal, Standbys, Weibull, check, fleet, gang_job
from tests.simulation.agreement import assert_agree
from tests.simulation.known import DAY_S, POOLS, KnownPool, job

MANY = 1_000_000


def rate(pool: KnownPool) -> float:
    return pool.nodes / (pool.node_mtbf_days * DAY_S)


def load(pool: KnownPool) -> float:
    return spares.offered_load(pool.nodes, pool.node_mtbf_days * DAY_S, pool.repair_h * 3600)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_standbys_repeat_what_another_simulator_found(pool: KnownPool) -> None:
    repair_s = pool.repair_h * 3600
    for simulate, repair, known in (
        (gang_job, Exponential(repair_s), pool.gang),
        (gang_job, LogNormal(repair_s), pool.gang_lognormal),
        (fleet, Exponential(repair_s), pool.fleet),
    ):
        found = simulate(rate(pool), Standbys(count=pool.standbys, repair=repair), 200_000, 2)
        assert_agree(found.p_no_standby, found.p_no_standby_se, known[0], known[1])
        assert_agree(found.share_short, found.share_short_se, known[2], found.share_short_se)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["exponential", "lognormal", "weibull", "constant"])
@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_a_gang_job_loses_standbys_as_erlang_says_whatever_the_repair(pool: KnownPool, shape: str) -> None:
    repair_s = pool.repair_h * 3600
    laws: dict[str, Law] = {
        "exponential": Exponential(repair_s),
        "lognormal": LogNormal(repair_s, 1.2),
        "weibull": Weibull(0.6, repair_s),
        "constant": Constant(repair_s),
    }
    found = gang_job(rate(pool), Standbys(count=pool.standbys, repair=laws[shape]), 2 * MANY, 3)
    expected = spares.spares(load(pool), pool.standbys, repair_s)
    assert_agree(found.p_no_standby, found.p_no_standby_se, expected.p_no_standby)
    assert_agree(found.share_short, found.share_short_se, expected.share_short)
    if shape == "exponential":
        assert found.short_each_s == pytest.approx(expected.mean_wait_s, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("repair", ["exponential", "lognormal"])
@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_a_fleet_that_keeps_failing_follows_poisson(pool: KnownPool, repair: str) -> None:
    repair_s = pool.repair_h * 3600
    law: Law = Exponential(repair_s) if repair == "exponential" else LogNormal(repair_s)
    found = fleet(rate(pool), Standbys(count=pool.standbys, repair=law), 2 * MANY, 4)
    expected = spares.spares(load(pool), pool.standbys, repair_s)
    assert_agree(found.p_no_standby, found.p_no_standby_se, expected.fleet_p_no_standby)
    assert_agree(found.share_short, found.share_short_se, expected.fleet_share_short)


@pytest.mark.parametrize(("standbys", "offered"), [(0, 0.05), (0, 3.0), (1, 5.0), (4, 1.0), (30, 25.0)])
def test_small_and_overloaded_pools_follow_erlang_too(standbys: int, offered: float) -> None:
    found = gang_job(1e-4, Standbys(count=standbys, repair=Exponential(1e4 * offered)), 400_000, 5)
    expected = spares.spares(offered, standbys, 1e4 * offered)
    assert_agree(found.p_no_standby, found.p_no_standby_se, expected.p_no_standby)
    assert_agree(found.share_short, found.share_short_se, expected.share_short)


def test_only_failures_that_lose_a_node_need_a_standby() -> None:
    found = gang_job(1e-4, Standbys(count=2, repair=Exponential(3e4), node_share=0.4), 400_000, 6)
    expected = spares.spares(0.4 * 3, 2, 3e4)
    assert_agree(found.p_no_standby, found.p_no_standby_se, 0.4 * expected.p_no_standby)
    assert_agree(found.share_short, found.share_short_se, expected.share_short)


@pytest.mark.slow
@pytest.mark.parametrize("standbys", [8, 10, 12, 14])
def test_the_mean_downtime_is_all_that_enters_the_rate(standbys: int) -> None:
    """1024 nodes, a day of repair: too few standbys cost points; the formula takes the mean of swap and wait."""
    pool = POOLS[0]
    inputs = job(30, 1 / rate(pool), 300, 60)
    mean_s = spares.mean_downtime(60, spares.spares(load(pool), standbys, DAY_S), DAY_S)
    found = check(inputs, 1000, MANY, 7, standbys=Standbys(count=standbys, repair=Exponential(DAY_S)), limit_s=60)
    expected = exact.ettr_at(replace(inputs, downtime_s=mean_s), 1000)
    assert abs(found.ettr - expected) <= 4 * found.se + 0.001
    assert exact.ettr_at(inputs, 1000) - found.ettr > 4 * found.se


def test_a_pool_that_begins_full_is_settled_before_it_counts() -> None:
    slow = Standbys(count=3, repair=Exponential(50 * DAY_S))
    short = gang_job(1 / DAY_S, slow, 4000, 8)
    assert_agree(short.p_no_standby, short.p_no_standby_se, spares.erlang_b(3, 50))


def test_a_planned_stop_takes_no_standby() -> None:
    """Six planned stops a day, a failure a week: hardly ever a wait, though each repair takes a day."""
    inputs = replace(job(30, 7 * DAY_S, 60, 60), planned_stops_per_s=1 / 14400)
    one = Standbys(count=1, repair=Exponential(DAY_S))
    found = check(inputs, 600, 2000, 3, standbys=one, limit_s=60)
    plain = check(inputs, 600, 2000, 3, limit_s=60)
    waits = spares.spares(1 / 7, 1, DAY_S)
    assert plain.ettr - found.ettr == pytest.approx(plain.ettr * waits.share_short, abs=0.004)


@pytest.mark.parametrize("simulate", [gang_job, fleet])
def test_what_never_settles_is_refused_in_time(simulate: object) -> None:
    forever = Standbys(count=2000, repair=Exponential(4e10), node_share=1e-3)
    with pytest.raises(InvalidInput):
        simulate(1e-4, forever, 1000, limit_s=0.3)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"failures_per_s": 0}, "failures_per_s"),
        ({"failures_per_s": math.nan}, "failures_per_s"),
        ({"failures_per_s": 1e9}, "repair_s"),
        ({"failures": 5}, "failures"),
        ({"seed": -1}, "seed"),
        ({"limit_s": 0}, "limit_s"),
    ],
)
@pytest.mark.parametrize("simulate", [gang_job, fleet])
def test_impossible_pools_are_refused_by_name(simulate: object, change: dict[str, object], field: str) -> None:
    arguments = {"failures_per_s": 1e-4, "standbys": Standbys(count=1, repair=Exponential(1e4)), **change}
    with pytest.raises(InvalidInput) as refused:
        simulate(**arguments)  # type: ignore[operator]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("mtbf_s", "swap_s", "standbys", "repair_s", "close"),
    [
        (36_000, 1, 1, 40_000, True),
        (36_000, 1, 0, 9_000, True),
        (36_000, 360, 1, 40_000, False),
        (36_000, 2_000, 2, 60_000, False),
        (10_800, 600, 3, 30_000, False),
    ],
)
def test_the_rate_with_standbys_is_on_the_safe_side(
    mtbf_s: float, swap_s: float, standbys: int, repair_s: float, close: bool
) -> None:
    """Never above the simulated rate; the same where a swap takes no time in which repairs could end."""
    inputs = job(30, mtbf_s, 300, swap_s)
    pool = Standbys(count=standbys, repair=Exponential(repair_s))
    found = check(inputs, 1500, 200_000, 11, standbys=pool, limit_s=100)
    mean_s = spares.mean_downtime(swap_s, spares.spares(repair_s / mtbf_s, standbys, repair_s), repair_s)
    planned = exact.ettr_at(replace(inputs, downtime_s=mean_s), 1500)
    assert planned <= found.ettr + 4 * found.se
    assert planned >= found.ettr - (4 * found.se if close else 0.015)
