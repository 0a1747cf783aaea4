"""The same plan under other laws of faults, and the copies that each tier gets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import exact, what_if
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.request import Request

JOB = Inputs(save_stall_s=30.0, mtbf_s=10_800.0, recovery_s=300.0, downtime_s=120.0, target=0.8)


def test_the_first_law_is_the_models_own_and_the_others_move_the_rate_by_less_than_two_points() -> None:
    plan = exact.plan(JOB)
    assert plan.period_s is not None
    rows = what_if.under_laws(JOB, plan.period_s)
    assert rows[0].ettr == pytest.approx(plan.ettr_max, rel=1e-12)
    assert [round(row.ettr, 4) for row in rows[1:3]] == [0.8959, 0.9030]
    for row in rows:
        assert row.best_ettr >= row.ettr * (1 - 1e-9)
        assert abs(row.ettr - plan.ettr_max) < 0.02


def test_a_cluster_that_cannot_always_run_the_job_lowers_every_law_alike() -> None:
    half = Inputs(save_stall_s=30.0, mtbf_s=10_800.0, recovery_s=300.0, target=0.3, cluster_availability=0.5)
    whole = Inputs(save_stall_s=30.0, mtbf_s=10_800.0, recovery_s=300.0, target=0.3)
    for one, two in zip(what_if.under_laws(half, 900.0), what_if.under_laws(whole, 900.0), strict=True):
        assert one.ettr == pytest.approx(two.ettr / 2, rel=1e-12)


def test_without_faults_no_law_is_told() -> None:
    assert what_if.under_laws(Inputs(save_stall_s=1.0, mtbf_s=None, recovery_s=1.0, target=0.9), 100.0) == ()


@given(stall=st.floats(0, 1e4), mtbf=st.floats(1e-3, 1e9), recovery=st.floats(0, 1e6), period=st.floats(1e-3, 1e9))
def test_whatever_the_plan_the_rates_are_shares(stall: float, mtbf: float, recovery: float, period: float) -> None:
    inputs = Inputs(save_stall_s=stall, mtbf_s=mtbf, recovery_s=recovery, target=0.5)
    for row in what_if.under_laws(inputs, period):
        assert 0 <= row.ettr <= 1
        assert 0 <= row.best_ettr <= 1
        assert math.isfinite(row.best_period_s)


def test_a_tier_that_is_slower_than_the_period_copies_back_to_back() -> None:
    request = Request(
        save_stall_s=5, mtbf_s=36_000.0, recovery_s=60, target=0.9, drain_s=400, drain_ssd_s=20, node_share=0.3,
        memory_share=0.1,
    )  # fmt: skip
    memory, ssd, storage = what_if.tiers(request, 100.0)
    assert (memory.fault_share, memory.every_s, memory.undone_s) == (pytest.approx(0.6), 100.0, 50.0)
    assert (ssd.every_s, ssd.undone_s) == (100.0, 70.0)
    assert (storage.every_s, storage.undone_s) == (400.0, 600.0)
