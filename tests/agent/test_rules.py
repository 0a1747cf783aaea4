"""The agent's pure rules: when a lease demands a stop, and which shards may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.agent.lease import STARTUP_S, must_stop
from reliability.agent.retention import removable
from reliability.domain.policy import LeaseRule
from reliability.domain.snapshots import EpochStart, SnapshotId
from reliability.tiers.shards import Shard, parse

seconds = st.floats(0, 1e5)


@given(st.sampled_from(LeaseRule), seconds, seconds, seconds, st.booleans())
def test_nothing_is_stopped_while_the_lease_holds(
    rule: LeaseRule, lease_s: float, stepless_s: float, step_s: float, stepped: bool
) -> None:
    assert not must_stop(
        rule, unanswered_s=lease_s, lease_s=lease_s, stepless_s=stepless_s, step_s=step_s, stepped=stepped
    )


@pytest.mark.parametrize(
    ("stepless_s", "step_s", "stepped", "stop"),
    [
        (3.9, 0.1, True, False),
        (4.1, 0.1, True, True),
        (60.0, 30.0, True, False),
        (91.0, 30.0, True, True),
        (STARTUP_S - 1, 0.0, False, False),
        (STARTUP_S + 1, 0.0, False, True),
    ],
)
def test_a_job_is_stuck_by_its_own_measure(stepless_s: float, step_s: float, stepped: bool, stop: bool) -> None:
    given_times = {"unanswered_s": 200.0, "lease_s": 4.0, "stepless_s": stepless_s, "step_s": step_s}
    assert must_stop(LeaseRule.STOP_WHEN_STUCK, **given_times, stepped=stepped) is stop


shards = st.lists(st.builds(Shard, st.integers(1, 4), st.integers(1, 50), st.integers(0, 2)), unique=True)


starts = [EpochStart(epoch=1, restored=None), EpochStart(epoch=3, restored=SnapshotId(1, 25))]


def in_the_line(shard: Shard) -> bool:
    return (shard.epoch == 1 and shard.step <= 25) or shard.epoch >= 3


@given(shards, st.integers(1, 5), st.integers(0, 60))
def test_neither_the_newest_of_the_line_nor_anything_at_or_above_the_floor_is_removed(
    found: list[Shard], keep: int, floor: int
) -> None:
    removed = set(removable(found, starts=starts, keep=keep, floor=floor))
    line = [shard for shard in found if in_the_line(shard)]
    kept = sorted({(shard.step, shard.epoch) for shard in line}, reverse=True)[:keep]
    for shard in line:
        if shard.step >= floor or (shard.step, shard.epoch) in kept:
            assert shard not in removed


@given(shards, st.integers(1, 5))
def test_nothing_at_all_is_removed_while_the_server_vouches_for_no_step(found: list[Shard], keep: int) -> None:
    assert removable(found, starts=starts, keep=keep, floor=None) == []


@given(shards, st.integers(0, 60))
def test_nothing_is_removed_before_the_newest_attempt_has_committed_something_here(
    found: list[Shard], floor: int
) -> None:
    old = [shard for shard in found if shard.epoch < 3]
    assert removable(old, starts=starts, keep=1, floor=floor) == []


def test_what_a_node_that_joined_late_cannot_judge_stays_like_the_line_it_came_from() -> None:
    joined = [EpochStart(epoch=5, restored=SnapshotId(4, 100))]
    found = [Shard(3, 50, 0), Shard(4, 100, 0), Shard(4, 110, 0), Shard(5, 120, 0)]
    assert removable(found, starts=joined, keep=4, floor=60) == [Shard(4, 110, 0)]


def test_keys_of_both_forms_name_the_same_shard() -> None:
    shard = Shard(3, 40, 2)
    assert parse(shard.flat_key) == parse(shard.stored_key) == shard
    assert parse("e3-s40") is None
    assert parse("notes.txt") is None
