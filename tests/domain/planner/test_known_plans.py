"""Plans that were worked out elsewhere: both models agree with them, and with simulations of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from reliability.domain.planner import Inputs, exact, first_order
from reliability.domain.planner.results import Limits, ModelPlan
from reliability.domain.planner.spread import ettr_sd
from reliability.domain.planner.steps import step_plan

KNOWN: dict[str, Any] = json.loads(Path(__file__).with_name("plans.json").read_text())
PLANS = {known["name"]: known for known in KNOWN["plans"]}
BY_EXACT = [name for name, known in PLANS.items() if "exact" in known]
BY_FIRST_ORDER = [name for name, known in PLANS.items() if "first_order" in known]
DRAINS = {known["name"]: known for known in KNOWN["drains"]}
TOLERANCE = KNOWN["tolerance"]


def near(value: float | None, tolerance: float) -> Any:
    return None if value is None else pytest.approx(value, rel=tolerance)


def assert_agrees(plan: ModelPlan, expected: dict[str, Any], tolerance: float) -> None:
    assert plan.period_s == near(expected["period_s"], tolerance)
    assert plan.ettr_max == near(expected["ettr_max"], tolerance)
    assert plan.feasible is expected["feasible"]
    if expected["interval_s"] is None:
        assert plan.interval_s is None
    else:
        assert plan.interval_s == tuple(near(end, tolerance) for end in expected["interval_s"])
    if "limits" in expected:
        assert_limits(plan.limits, expected["limits"], tolerance)


def assert_limits(limits: Limits, expected: dict[str, Any], tolerance: float) -> None:
    assert limits.save_stall_s == near(expected["save_stall_s"], tolerance)
    assert limits.recovery_s == near(expected["recovery_s"], tolerance)
    assert limits.mtbf_s == near(1 / expected["most_faults_per_s"], tolerance)


@pytest.mark.parametrize("name", BY_FIRST_ORDER)
def test_the_first_order_agrees(name: str) -> None:
    inputs, expected = Inputs(**PLANS[name]["inputs"]), PLANS[name]["first_order"]
    assert_agrees(first_order.plan(inputs), expected, TOLERANCE["first_order"])
    if "exact_ettr_there" in expected:
        there = exact.ettr_at(inputs, expected["period_s"])
        assert there == near(expected["exact_ettr_there"], TOLERANCE["first_order"])


@pytest.mark.parametrize("name", [name for name in BY_FIRST_ORDER if "simulated" in PLANS[name]["first_order"]])
def test_the_first_order_is_below_the_simulation_by_no_more_than_its_gap(name: str) -> None:
    simulated = PLANS[name]["first_order"]["simulated"]
    above = simulated["ettr"] - first_order.plan(Inputs(**PLANS[name]["inputs"])).ettr_max
    assert -4 * simulated["standard_error"] <= above <= simulated["gap"] + 4 * simulated["standard_error"]


@pytest.mark.parametrize("name", BY_EXACT)
def test_the_exact_model_agrees(name: str) -> None:
    inputs, expected = Inputs(**PLANS[name]["inputs"]), PLANS[name]["exact"]
    plan = exact.plan(inputs)
    assert_agrees(plan, expected, TOLERANCE["exact"])
    assert plan.work_s == near(expected["work_s"], TOLERANCE["exact"])
    lower = first_order.plan(inputs)
    assert lower.period_s == near(expected["first_order_period_s"], TOLERANCE["first_order"])
    assert lower.ettr_max == near(expected["first_order_ettr_max"], TOLERANCE["first_order"])


@pytest.mark.parametrize("name", [name for name in BY_EXACT if "published_work" in PLANS[name]["exact"]])
def test_the_best_work_between_saves_is_the_published_one(name: str) -> None:
    """Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", figures 3 and 5."""
    published = PLANS[name]["exact"]["published_work"]
    work_s = exact.plan(Inputs(**PLANS[name]["inputs"])).work_s
    assert work_s is not None
    assert abs(work_s / 60 - published["minutes"]) <= published["within"]


def test_the_best_work_for_a_fault_every_six_hours_is_the_published_57_minutes() -> None:
    """Daly 2006, the figure between those two."""
    plan = exact.plan(Inputs(save_stall_s=300, mtbf_s=6 * 3600, recovery_s=600, target=0.8))
    assert plan.work_s is not None
    assert abs(plan.work_s / 60 - 57) <= 0.5


@pytest.mark.parametrize("name", BY_EXACT)
def test_the_exact_rate_is_within_four_standard_errors_of_the_simulation(name: str) -> None:
    inputs, simulated = Inputs(**PLANS[name]["inputs"]), PLANS[name]["exact"]["simulated"]
    plan = exact.plan(inputs)
    low_s, high_s = plan.interval_s or (None, None)
    for where, period_s in (("best", plan.period_s), ("low", low_s), ("high", high_s)):
        if where in simulated and period_s is not None:
            off = exact.ettr_at(inputs, period_s) - simulated[where]["ettr"]
            assert abs(off) <= 4 * simulated[where]["standard_error"]


def test_the_units_in_which_the_same_is_told_do_not_matter() -> None:
    per_day = Inputs(save_stall_s=30, mtbf_s=86400 / 2.4, recovery_s=10 * 60, target=93 / 100)
    assert_agrees(first_order.plan(per_day), PLANS[BY_FIRST_ORDER[0]]["first_order"], TOLERANCE["first_order"])


def test_the_best_number_of_steps_and_those_that_keep_the_target() -> None:
    known = KNOWN["steps"]
    inputs = Inputs(**PLANS[known["plan"]]["inputs"])
    steps = step_plan(inputs, first_order.plan(inputs), known["step_s"])
    assert steps is not None
    assert (steps.every_steps, steps.interval) == (known["every_steps"], tuple(known["interval"]))
    assert steps.period_s == near(known["every_steps"] * known["step_s"] + inputs.save_stall_s, 1e-12)


@pytest.mark.parametrize(("ratio", "multiple"), KNOWN["flatness"]["ratio"].items())
def test_the_loss_is_flat_around_the_optimum(ratio: str, multiple: float) -> None:
    """A rate of faults that is wrong by a factor of 4 moves the period by 2 and costs a quarter more."""
    inputs = Inputs(save_stall_s=30, mtbf_s=36000, recovery_s=0, target=0.9)
    plan = first_order.plan(inputs)
    assert plan.period_s is not None
    loss = 1 - first_order.ettr_at(inputs, plan.period_s * float(ratio))
    assert loss == near(multiple * (1 - plan.ettr_max), TOLERANCE["first_order"])


def test_the_shares_of_time_agree_and_add_up() -> None:
    known = KNOWN["shares"]
    shares = exact.shares_at(Inputs(**known["inputs"]), known["period_s"])
    for name in ("useful", "saving", "rollback", "recovery", "downtime"):
        assert getattr(shares, name) == near(known[name], TOLERANCE["shares"])
    simulated = known["simulated"]
    assert abs(shares.useful - simulated["ettr"]) <= 4 * simulated["standard_error"]


def test_the_spread_of_a_week_agrees_with_simulated_weeks() -> None:
    known, shares = KNOWN["spread"], KNOWN["shares"]
    sd = ettr_sd(Inputs(**shares["inputs"]), shares["period_s"], known["window_s"])
    assert sd == near(known["sd"], 1e-9)
    among_weeks = known["simulated"]["standard_error"] * known["simulated"]["weeks"] ** 0.5
    assert sd == near(among_weeks, TOLERANCE["spread"])


@pytest.mark.parametrize("name", DRAINS)
def test_a_drain_agrees_in_both_models(name: str) -> None:
    known = DRAINS[name]
    inputs = Inputs(**known["inputs"])
    period_s, tolerance = known["work_s"] + inputs.save_stall_s, TOLERANCE["drains"]
    assert exact.ettr_at(inputs, period_s) == near(known["ettr"], tolerance)
    assert first_order.ettr_at(inputs, period_s) == near(known["first_order_ettr"], tolerance)
    assert exact.plan(inputs).work_s == near(known["best_work_s"], tolerance)
    assert abs(known["ettr"] - known["simulated"]["ettr"]) <= 4 * known["simulated"]["standard_error"]
    ignored = Inputs(**{**known["inputs"], "drain_s": 0})
    assert exact.ettr_at(ignored, period_s) == near(known["ettr_without_drain"], tolerance)
    assert exact.plan(ignored).work_s == near(known["best_work_without_drain_s"], tolerance)
