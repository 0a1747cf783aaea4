"""When is a snapshot due, and what happens to a plan file that is wrong?"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.trainer.schedule import PlanEntry, Schedule, due, parse


def test_the_newest_entry_that_was_reached_decides():
    plan = [PlanEntry(0, 10), PlanEntry(25, 4)]
    assert [step for step in range(1, 37) if due(plan, step)] == [10, 20, 28, 32, 36]


def test_nothing_is_due_without_a_plan_or_before_its_first_step():
    assert not due([], 10)
    assert not due([PlanEntry(50, 10)], 40)


@given(st.lists(st.builds(PlanEntry, st.integers(0, 200), st.integers(1, 50)), max_size=5), st.integers(1, 500))
def test_a_later_entry_changes_nothing_before_its_own_first_step(plan: list[PlanEntry], step: int):
    assert due([*plan, PlanEntry(step + 1, 1)], step) == due(plan, step)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ([], "object"),
        ({"version": 1}, "plan"),
        ({"version": -1, "plan": []}, "version"),
        ({"version": 1, "plan": [{"from_step": 0, "every_steps": 0}]}, r"plan\[0\].every_steps"),
        ({"version": 1, "plan": [{"from_step": "0", "every_steps": 1}]}, r"plan\[0\].from_step"),
        ({"version": 1, "plan": [7]}, r"plan\[0\]"),
    ],
)
def test_a_wrong_plan_is_refused_by_field(raw: object, field: str):
    with pytest.raises(ValueError, match=field):
        parse(raw)


def test_a_running_rank_takes_over_a_new_plan_and_keeps_the_last_good_one(tmp_path: Path):
    path = tmp_path / "period.json"
    schedule = Schedule(path)
    assert not schedule.due(5)
    path.write_text(json.dumps({"version": 1, "plan": [{"from_step": 0, "every_steps": 5}]}))
    assert schedule.due(5)
    assert schedule.version == 1
    fresh = tmp_path / "fresh"
    fresh.write_text('{"version": 2, "plan"')
    fresh.replace(path)
    assert schedule.due(10)
    assert "period.json" in schedule.problem
    fresh.write_text(json.dumps({"version": 3, "plan": [{"from_step": 12, "every_steps": 7}]}))
    fresh.replace(path)
    assert not schedule.due(10)
    assert schedule.due(14)
    assert (schedule.version, schedule.problem) == (3, "")
