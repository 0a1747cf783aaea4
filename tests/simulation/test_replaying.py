"""What does a replay of recorded failures say, where the answer is known?"""

import math
from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
import pytest

from reliability.domain.planner import Inputs, exact, renewal
from reliability.errors import InvalidInput
from reliability.simulation import Exponential, Job, Weibull, best_period, gaps_between, replay
from tests.simulation.agreement import assert_agree
from tests.simulation.known import DAY_S

EVEN = Job(period_s=600, save_stall_s=60, recovery_s=90, downtime_s=30)
INPUTS = Inputs(save_stall_s=60, mtbf_s=8 * 3600, recovery_s=600, downtime_s=120, target=0.5)


def at(mtbf_s: float) -> Inputs:
    return replace(INPUTS, mtbf_s=mtbf_s)


def shaped(period_s: float) -> Job:
    return Job(period_s=period_s, save_stall_s=60, recovery_s=600, downtime_s=120)


def drawn(seed: int, *stretches: tuple[int, float]) -> np.ndarray:
    """Return exponential gaps: so many of a mean, one stretch after the other."""
    chance = np.random.default_rng(seed)
    return np.concatenate([Exponential(mean_s).draw(chance, count) for count, mean_s in stretches])


def test_evenly_spaced_failures_give_what_one_works_out_by_hand() -> None:
    """2000 s from failure to failure: 30 down, 90 recovering, 3 periods of 600 kept (540 of work each), 80 lost."""
    found = replay([2000.0] * 50, EVEN)
    assert found.ettr == pytest.approx(3 * 540 / 2000, rel=1e-12)
    assert astuple(found.shares) == pytest.approx((0.81, 0.09, 0.04, 0.045, 0.015), rel=1e-12)
    assert (found.failures, found.elapsed_s) == (50, 100_000)


def test_a_drain_loses_the_copy_that_was_still_on_its_way() -> None:
    assert replay([2000.0] * 50, replace(EVEN, drain_s=80)).ettr == pytest.approx(3 * 540 / 2000)
    assert replay([2000.0] * 50, replace(EVEN, drain_s=81)).ettr == pytest.approx(2 * 540 / 2000)


def test_a_failure_while_the_job_is_down_or_recovering_keeps_nothing() -> None:
    found = replay([10.0, 0.0, 100.0, 120.0], EVEN)
    assert found.ettr == 0
    assert found.shares.downtime == pytest.approx((10 + 30 + 30) / 230)


def test_instants_may_come_in_any_order() -> None:
    assert list(gaps_between([500.0, -100.0, 0.0, 0.0])) == [100, 0, 500]


@pytest.mark.parametrize("period_s", [300.0, 1800.0, 7200.0])
def test_exponential_gaps_give_the_exact_rate(period_s: float) -> None:
    """The gaps of the calendar contain the downtime, the mean time between faults does not."""
    gaps = drawn(1, (400_000, 28_800)) + 120
    found = replay(gaps, shaped(period_s))
    assert_agree(found.ettr, found.se, exact.ettr_at(INPUTS, period_s))


def test_the_best_fixed_period_of_exponential_gaps_is_the_planned_one() -> None:
    gaps = drawn(2, (20_000, 28_800)) + 120
    plan, best = exact.plan(INPUTS), best_period(gaps, shaped(1800), low_s=300, high_s=20_000, points=60)
    assert plan.period_s is not None
    assert best.period_s == pytest.approx(plan.period_s, rel=0.15)
    planned = replay(gaps, shaped(plan.period_s)).ettr
    assert planned <= best.ettr <= planned + 0.001


def test_the_search_does_better_than_every_period_of_a_plain_grid() -> None:
    gaps = drawn(3, (500, 28_800))
    best = best_period(gaps, shaped(1800), low_s=200, high_s=40_000)
    others = [replay(gaps, shaped(float(period))).ettr for period in np.geomspace(200, 40_000, 150)]
    assert best.ettr >= max(others) - 2e-4


def test_a_search_ends_with_its_time_limit_and_begins_in_the_middle() -> None:
    gaps = drawn(3, (2000, 28_800))
    at_once = best_period(gaps, shaped(1800), low_s=600, high_s=5400, points=9, limit_s=1e-9)
    assert at_once.period_s == pytest.approx(1800)
    assert best_period(gaps, shaped(1800), low_s=600, high_s=5400, points=9).ettr >= at_once.ettr
    with pytest.raises(InvalidInput, match="limit_s"):
        best_period(gaps, shaped(1800), low_s=600, high_s=5400, limit_s=0)


@pytest.mark.slow
def test_gaps_like_those_of_real_logs_cost_little_by_the_exponential_plan() -> None:
    """Weibull gaps of shape 0.65 to 0.89 with the right mean: within 0.8 points, and on the safe side."""
    for seed, shape in enumerate((0.65, 0.7, 0.8, 0.89)):
        law = Weibull(shape, 28_800)
        gaps = law.draw(np.random.default_rng(seed), 50_000) + 120
        plan = exact.plan(INPUTS)
        assert plan.period_s is not None
        found = replay(gaps, shaped(plan.period_s))
        expected = renewal.ettr(renewal.Weibull(shape=shape, mean_s=28_800), plan.period_s - 60, INPUTS)
        assert_agree(found.ettr, found.se, expected)
        assert plan.ettr_max <= found.ettr + 4 * found.se
        assert found.ettr - 4 * found.se <= plan.ettr_max + 0.008
        best = best_period(gaps, shaped(1800), low_s=600, high_s=9000, points=20)
        assert best.ettr - found.ettr < 0.001


# LANL 1996-2005: failures per day in each half, then what was planned from the first half and found in the second.
SYSTEMS = {
    "18": (3.389, 3.164, 29.5, 0.9070, 0.9126, 0.9108, 0.9132),
    "19": (3.153, 3.063, 30.6, 0.9110, 0.9134, 0.9126, 0.9140),
    "20": (4.316, 1.155, 26.2, 0.8919, 0.9434, 0.9513, 0.9532),
    "8": (0.257, 0.355, 106.1, 0.9791, 0.9764, 0.9751, 0.9764),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_plans_from_the_rates_of_real_logs_are_those_that_were_published(system: str) -> None:
    first, second, minutes, planned, _, right, _ = SYSTEMS[system]
    plan = exact.plan(at(DAY_S / first))
    assert plan.period_s is not None
    assert plan.period_s / 60 == pytest.approx(minutes, abs=0.11)
    assert plan.ettr_max == pytest.approx(planned, abs=0.0001)
    assert exact.plan(at(DAY_S / second)).ettr_max == pytest.approx(right, abs=0.0001)


@pytest.mark.parametrize("system", SYSTEMS)
def test_gaps_drawn_at_the_rates_of_real_logs_replay_near_what_was_found_there(system: str) -> None:
    """Exponential gaps at the second half's rate; the real ones, clustered, were up to 0.4 points kinder."""
    first, second, _, _, realised, _, best = SYSTEMS[system]
    plan = exact.plan(at(DAY_S / first))
    assert plan.period_s is not None
    gaps = drawn(4, (50_000, DAY_S / second))
    found = replay(gaps, shaped(plan.period_s)).ettr
    assert found == pytest.approx(realised, abs=0.004)
    assert best_period(gaps, shaped(1800), low_s=600, high_s=20_000, points=25).ettr == pytest.approx(best, abs=0.004)


def regret(planned_on: Sequence[float] | np.ndarray, replayed_on: Sequence[float] | np.ndarray) -> float:
    """Return what the period planned on some gaps loses on others against the best fixed one."""
    plan = exact.plan(at(float(np.mean(planned_on))))
    assert plan.period_s is not None
    best = best_period(replayed_on, shaped(1800), low_s=600, high_s=20_000, points=60)
    return best.ettr - replay(replayed_on, shaped(plan.period_s)).ettr


def test_a_rate_that_falls_four_fold_costs_about_a_point_and_a_steady_one_nothing() -> None:
    early, late = drawn(5, (1950, DAY_S / 4.316)), drawn(6, (20_000, DAY_S / 1.155))
    assert regret(early, late) == pytest.approx(0.009, abs=0.003)
    assert regret(late[:2000], late) < 0.0005


@pytest.mark.parametrize(
    ("gaps", "field"),
    [
        ([], "gaps_s"),
        ([0.0, 0.0], "gaps_s"),
        ([1.0, -1.0], "gaps_s"),
        ([1.0, math.nan], "gaps_s"),
        ([1.0, math.inf], "gaps_s"),
        (["a"], "gaps_s"),
        ([[1.0], [2.0]], "gaps_s"),
        ([[1.0], [2.0, 3.0]], "gaps_s"),
        ([10**400], "gaps_s"),
        (5, "gaps_s"),
        (None, "gaps_s"),
    ],
)
def test_gaps_that_cannot_be_are_refused(gaps: object, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replay(gaps, EVEN)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_one_instant_has_no_gap_and_a_search_needs_room() -> None:
    with pytest.raises(InvalidInput, match="failed_at_s"):
        gaps_between([5.0])
    with pytest.raises(InvalidInput, match="high_s"):
        best_period([1000.0], EVEN, low_s=10, high_s=60)
