"""What cannot be planned with is refused by name, with what would be right."""

import math
from typing import Any

import pytest

from reliability.domain.planner import Inputs, exact, first_order
from reliability.errors import InvalidInput

GOOD: dict[str, Any] = {"save_stall_s": 30, "mtbf_s": 36000, "recovery_s": 600, "target": 0.93}
BAD = [-1, -0.1, math.nan, math.inf, -math.inf, 1e101, 10**400, "30", True, None]


def refusal(**changed: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        Inputs(**{**GOOD, **changed})
    return refused.value


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("field", ["save_stall_s", "recovery_s", "downtime_s", "drain_s", "planned_stops_per_s"])
def test_a_time_that_is_none_is_refused_by_name(field: str, value: Any) -> None:
    refused = refusal(**{field: value})
    assert refused.field == field
    assert refused.hint


@pytest.mark.parametrize("value", [*BAD[:-1], 0, 0.0, 1e-101])
def test_a_time_between_faults_that_is_none_is_refused(value: Any) -> None:
    assert refusal(mtbf_s=value).field == "mtbf_s"


@pytest.mark.parametrize("value", [*BAD, 0, 1, 1.0, 93])
def test_a_target_that_is_no_share_is_refused(value: Any) -> None:
    assert refusal(target=value).field == "target"


@pytest.mark.parametrize("value", [*BAD, 0, 1.1, 99])
def test_an_availability_that_is_no_share_is_refused(value: Any) -> None:
    assert refusal(cluster_availability=value).field == "cluster_availability"


@pytest.mark.parametrize("changed", [{}, {"mtbf_s": None}, {"mtbf_s": 0.5}])
def test_planned_stops_that_take_all_of_the_time_are_refused(changed: dict[str, Any]) -> None:
    refused = refusal(planned_stops_per_s=1 / 300, **changed)
    assert refused.field == "planned_stops_per_s"
    assert "all of the time" in str(refused)


def test_without_planned_stops_a_recovery_that_never_ends_is_planned_with() -> None:
    plan = exact.plan(Inputs(save_stall_s=30, mtbf_s=0.5, recovery_s=600, target=0.93))
    assert plan.ettr_max == 0.0
    assert plan.shares.recovery == 1.0


def test_the_share_that_is_available_leaves_out_the_cluster_and_planned_stops() -> None:
    inputs = Inputs(**GOOD, cluster_availability=0.9, planned_stops_per_s=1e-4)
    assert inputs.available == pytest.approx(0.9 * (1 - 1e-4 * 36000 * math.expm1(600 / 36000)), rel=1e-12)
    assert inputs.faults_per_s == 1 / 36000


@pytest.mark.parametrize("period_s", [-1, math.nan, math.inf, 0, "1", None])
@pytest.mark.parametrize("ask", [exact.ettr_at, exact.shares_at, first_order.ettr_at, first_order.shares_at])
def test_a_period_that_is_none_is_refused(ask: Any, period_s: Any) -> None:
    with pytest.raises(InvalidInput, match="period_s"):
        ask(Inputs(**GOOD), period_s)
