"""A period is changed by itself only with reason: hysteresis, limits, a gain that counts, and data that say so."""

from typing import Any

import pytest

from reliability.domain.planner.answer import Request, answer
from reliability.domain.planner.replanning import Limits, Outcome, judge
from reliability.errors import InvalidInput

WIDE = Limits(target=0.9, shortest_period_s=1.0, longest_period_s=1e6)


def outcome(every_steps: int, limits: Limits = WIDE, **values: Any) -> Outcome:
    """What a look at a job with steps of 1 s comes to; the best period is 100 s."""
    base: dict[str, Any] = {"save_stall_s": 1.0, "mtbf_s": 5000.0, "recovery_s": 30.0, "target": limits.target}
    request = Request(**{**base, **values}, step_s=1.0, period_s=every_steps + 1.0)
    return judge(limits, answer(request), every_steps=every_steps)


def limits(**values: float) -> Limits:
    return Limits(**{"target": 0.9, "shortest_period_s": 1.0, "longest_period_s": 1e6, **values})


def test_a_period_that_loses_much_is_changed_and_the_reason_says_what_it_gains() -> None:
    found = outcome(500)
    assert found.every_steps == pytest.approx(99, abs=1)
    assert found.told.startswith("A period of 1 min 40 s (99 steps) gives 97.")
    assert "at 8 min 21 s it was 94." in found.told


@pytest.mark.parametrize("every_steps", [85, 115])
def test_a_period_within_the_ratio_stays(every_steps: int) -> None:
    found = outcome(every_steps)
    assert found.every_steps is None
    assert found.told == "No change: the best period, 1 min 40 s (99 steps), is within 1.25 times of the present one."


def test_the_best_period_stays() -> None:
    assert outcome(99).told == "No change: the best period is the present one, 1 min 40 s (99 steps)."


def test_a_gain_that_does_not_count_changes_nothing() -> None:
    found = outcome(140, mtbf_s=5e6, save_stall_s=1e-3, limits=limits(target=0.99))
    assert found.every_steps is None
    assert "would gain only 0.0" in found.told


def test_a_period_that_few_faults_do_not_rule_out_stays() -> None:
    found = outcome(150, mtbf_s=None, faults=2, exposure_s=12500.0)
    assert found.every_steps is None
    assert "after so few faults the best period may be anything from" in found.told
    assert outcome(150, mtbf_s=None, faults=200, exposure_s=1e6).every_steps == pytest.approx(99, abs=1)


def test_the_best_period_within_the_limits_is_at_their_end_when_the_optimum_is_outside() -> None:
    assert outcome(500, limits(shortest_period_s=200.0)).every_steps == 199
    assert outcome(20, limits(longest_period_s=50.5)).every_steps == 49


def test_a_present_period_outside_the_limits_is_brought_inside_whatever_that_gains() -> None:
    found = outcome(99, limits(shortest_period_s=110.0))
    assert found.every_steps == 109
    assert found.told == "The present period of 1 min 40 s is outside the limits; now 1 min 50 s (109 steps)."


def test_limits_between_two_steps_leave_no_period() -> None:
    found = outcome(99, limits(shortest_period_s=100.2, longest_period_s=100.8))
    assert found == Outcome("No change: no whole number of steps is a period within the limits.")


@pytest.mark.parametrize("bounds", [{"target": 0.99}, {"target": 0.96, "shortest_period_s": 400.0}])
def test_a_target_that_cannot_be_kept_is_left_to_a_person(bounds: dict[str, float]) -> None:
    found = outcome(500, limits(**bounds))
    assert found.every_steps is None
    assert "cannot be kept; the best period within the limits" in found.told


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"target": 0.0}, "target"),
        ({"target": 1.0}, "target"),
        ({"target": 95.0}, "target"),
        ({"target": float("nan")}, "target"),
        ({"shortest_period_s": 0.0}, "shortest_period"),
        ({"shortest_period_s": -1.0}, "shortest_period"),
        ({"longest_period_s": float("inf")}, "longest_period"),
        ({"longest_period_s": 1.0}, "longest_period"),
        ({"change_ratio": 1.0}, "change_ratio"),
        ({"change_ratio": 0.5}, "change_ratio"),
        ({"least_interval_s": -1.0}, "least_interval"),
    ],
)
def test_limits_that_leave_no_room_name_the_field(values: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits(**values)
    assert refused.value.field == field
    assert refused.value.hint
