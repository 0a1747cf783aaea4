"""The exact model against the same model with 60 digits: 1e-9 of every value, however small lambda O is."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.roots import crossing, excess, falling, log_growth, rising
from tests.domain.planner.cases import DIGITS, Reference, sizes, wide

pytestmark = pytest.mark.slow


def budget(inputs: Inputs) -> tuple[float, float]:
    """Return -ln of what may be lost beside the fixed costs of faults, and the rounding that its parts carry."""
    faults = inputs.faults_per_s
    fixed = faults * (inputs.recovery_s + inputs.drain_s) + math.log1p(faults * inputs.downtime_s)
    return -math.log(inputs.target) - fixed, 2e-16 * (fixed - math.log(inputs.target))


@settings(max_examples=40)
@given(wide(drains=False))
def test_the_best_period_and_its_rate_are_exact(inputs: Inputs) -> None:
    reference, plan = Reference(inputs), exact.plan(inputs)
    period = reference.period()
    assert plan.period_s is not None
    assert plan.work_s is not None
    assert plan.period_s == pytest.approx(float(period), rel=1e-12)
    assert plan.work_s == pytest.approx(float(period - reference.stall), rel=1e-9)
    assert plan.ettr_max == pytest.approx(float(reference.rate(period)), rel=1e-12)


@settings(max_examples=40)
@given(wide(drains=False))
def test_both_ends_of_the_interval_are_exact(inputs: Inputs) -> None:
    allowed, rounding = budget(inputs)
    plan, stall = exact.plan(inputs), inputs.save_stall_s * inputs.faults_per_s
    assume(plan.interval_s is not None)
    assert plan.interval_s is not None
    assume(rounding < 1e-11 * allowed)
    assume(excess(allowed) > stall * 1.001)
    low, high = Reference(inputs).ends()
    assert plan.interval_s == (pytest.approx(float(low), rel=1e-9), pytest.approx(float(high), rel=1e-9))


@pytest.mark.parametrize("power", [-18, -15, -12, -9, -6, -3, -1, 0, 1])
def test_a_stall_that_is_tiny_against_the_time_between_faults_loses_no_digits(power: int) -> None:
    inputs = Inputs(save_stall_s=36000 * 10.0**power, mtbf_s=36000, recovery_s=600, downtime_s=60, target=1e-6)
    for target in (1e-6, exact.plan(inputs).ettr_max * 0.999):
        asked = replace(inputs, target=target)
        low, high = Reference(asked).ends()
        plan = exact.plan(asked)
        assert plan.period_s == pytest.approx(float(Reference(asked).period()), rel=1e-12)
        assert plan.interval_s == (pytest.approx(float(low), rel=1e-10), pytest.approx(float(high), rel=1e-10))


@settings(max_examples=40)
@given(wide(drains=False))
def test_the_longest_stall_and_recovery_are_exact(inputs: Inputs) -> None:
    allowed, rounding = budget(inputs)
    limits = exact.plan(inputs).limits
    stall, recovery = Reference(inputs).most_stall_and_recovery()
    if allowed > 0 and rounding < 1e-10 * allowed:
        assert limits.save_stall_s == pytest.approx(float(stall), rel=1e-9)
    if float(recovery) * inputs.faults_per_s > 1e6 * rounding:
        assert limits.recovery_s == pytest.approx(float(recovery), rel=1e-9)
    elif recovery < 0:
        assert limits.recovery_s in (None, 0.0)


@settings(max_examples=40)
@given(wide())
def test_every_share_of_time_is_exact(inputs: Inputs) -> None:
    reference, period_s = Reference(inputs), exact.best(inputs)[0]
    assert period_s is not None
    shares = exact.shares_at(inputs, period_s)
    with localcontext(prec=DIGITS):
        useful = reference.rate(Decimal(period_s))
        running = (-Decimal(inputs.recovery_s) / reference.mtbf).exp() / (1 + reference.downtime / reference.mtbf)
        saving = useful * reference.stall / (Decimal(period_s) - reference.stall)
        rollback = running - useful - saving
    assert shares.useful == pytest.approx(float(useful), rel=1e-9, abs=1e-300)
    assert shares.saving == pytest.approx(float(saving), rel=1e-9, abs=1e-300)
    assert shares.rollback == pytest.approx(float(rollback), rel=1e-9)


@settings(max_examples=20)
@given(wide(drains=False))
def test_the_least_time_between_faults_is_exact(inputs: Inputs) -> None:
    assume(1 - inputs.target > 1e-6)
    limit = exact.plan(inputs).limits.mtbf_s
    assert limit == pytest.approx(float(Reference(inputs).least_mtbf()), rel=1e-9)


@given(sizes(-30, 4))
def test_both_roots_solve_their_equation(e: float) -> None:
    y, t = falling(e), rising(e)
    with localcontext(prec=DIGITS):
        assert float(Decimal(y) - 1 + (-Decimal(y)).exp()) == pytest.approx(e, rel=1e-13)
        assert float(Decimal(t).exp() - 1 - Decimal(t)) == pytest.approx(e, rel=1e-11)


@given(st.one_of(sizes(-20, 3), st.just(0.0)))
def test_growth_keeps_its_digits(x: float) -> None:
    with localcontext(prec=DIGITS):
        expected = ((Decimal(x).exp() - 1) / Decimal(x)).ln() if x else Decimal(0)
        assert log_growth(x) == pytest.approx(float(expected), rel=1e-13)


def test_roots_of_nothing_are_0() -> None:
    assert falling(0.0) == rising(0.0) == falling(-1e-20) == rising(-1e-20) == 0.0


@given(sizes(-12, 12), sizes(-3, 3), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_crossing_is_found_from_any_guess(root: float, off: float, power: float) -> None:
    assert crossing(lambda x: root**power - x**power, root * off) == pytest.approx(root, rel=1e-12)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_a_function_that_never_crosses_has_no_crossing(value: float) -> None:
    assert crossing(lambda _: value, 1.0) is None
