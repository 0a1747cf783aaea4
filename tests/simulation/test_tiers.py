"""Does the check of a plan with tiers know which copy each fault needs?"""

from dataclasses import replace

import pytest

from reliability.domain.planner import exact
from reliability.errors import InvalidInput
from reliability.simulation import Tiers, check, check_tiers
from tests.simulation.agreement import assert_agree
from tests.simulation.known import job

PLAIN = job(30, 36_000, 600, 60)
SPREAD = Tiers(node_share=0.3, memory_share=0.3, drain_s=900, drain_ssd_s=100)


def test_a_drain_that_hardly_anybody_waits_for_costs_what_its_share_says() -> None:
    """Drains shorter than the period, so that every tier follows every save: the mean drain, to first order."""
    found = check_tiers(PLAIN, SPREAD, 1800, 200_000)
    expected = exact.ettr_at(replace(PLAIN, drain_s=0.3 * 900 + 0.3 * 100), 1800)
    assert found.ettr == pytest.approx(expected, abs=4 * found.se + 5e-4)
    assert found.ettr > exact.ettr_at(replace(PLAIN, drain_s=900), 1800) + 0.01


def test_faults_that_need_no_drained_copy_cost_what_they_do_without_drains() -> None:
    """The share of storage is as good as nothing."""
    found = check_tiers(PLAIN, Tiers(node_share=1e-3, memory_share=0, drain_s=100, drain_ssd_s=0), 1800, 100_000)
    assert_agree(found.ettr, found.se, exact.ettr_at(PLAIN, 1800))


def test_nearly_all_faults_on_storage_are_the_one_drain() -> None:
    found = check_tiers(PLAIN, Tiers(node_share=0.999, memory_share=0, drain_s=900, drain_ssd_s=0), 1800, 100_000)
    assert_agree(found.ettr, found.se, exact.ettr_at(replace(PLAIN, drain_s=0.999 * 900), 1800))


def test_a_tier_slower_than_the_period_does_not_hold_the_others_up() -> None:
    slow = Tiers(node_share=0.05, memory_share=0.2, drain_s=9000, drain_ssd_s=2500)
    found = check_tiers(PLAIN, slow, 1500, 100_000)
    assert found.period_s == 1500
    collapsed = check(replace(PLAIN, drain_s=9000), 1500, 100_000)
    assert found.ettr > collapsed.ettr + 0.1


@pytest.mark.parametrize(
    "tiers",
    [
        {"node_share": 1, "memory_share": 0, "drain_s": 900, "drain_ssd_s": 0},
        {"node_share": 0.5, "memory_share": 0, "drain_s": 0, "drain_ssd_s": 50},
        {"node_share": 0, "memory_share": 0, "drain_s": 900, "drain_ssd_s": 50},
    ],
)
def test_one_drain_for_all_or_none_is_no_matter_of_tiers(tiers: dict[str, float]) -> None:
    assert not Tiers(**tiers).differ
    with pytest.raises(InvalidInput, match="on tiers"):
        check_tiers(PLAIN, Tiers(**tiers), 1800, 1000)


@pytest.mark.parametrize(
    ("tiers", "field"),
    [
        ({"node_share": 0.7, "memory_share": 0.7, "drain_s": 1, "drain_ssd_s": 1}, "memory_share"),
        ({"node_share": -0.1, "memory_share": 0, "drain_s": 1, "drain_ssd_s": 1}, "node_share"),
        ({"node_share": 0.5, "memory_share": 0, "drain_s": float("nan"), "drain_ssd_s": 1}, "drain_s"),
    ],
)
def test_tiers_that_cannot_be_are_refused(tiers: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Tiers(**tiers)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("period_s", "drain_s", "field"), [(30, 900, "period_s"), (0, 900, "period_s"), (40, 1e8, "drain_s")]
)
def test_what_cannot_be_simulated_on_tiers_is_refused(period_s: float, drain_s: float, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_tiers(PLAIN, replace(SPREAD, drain_s=drain_s), period_s, 1000)
    assert refused.value.field == field
    with pytest.raises(InvalidInput):
        check_tiers(replace(PLAIN, mtbf_s=None), SPREAD, 1800, 1000)
