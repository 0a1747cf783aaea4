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


@given(shards, st.integers(1, 5))
def test_the_newest_shard_of_a_rank_in_the_line_is_never_removed(found: list[Shard], keep: int) -> None:
    starts = [EpochStart(epoch=1, restored=None), EpochStart(epoch=3, restored=SnapshotId(1, 25))]
    removed = set(removable(found, starts=starts, keep=keep))
    for rank in {shard.rank for shard in found}:
        line = [s for s in found if s.rank == rank and ((s.epoch == 1 and s.step <= 25) or s.epoch >= 3)]
        if line:
            assert max(line) not in removed
        elif not any(s.rank == rank for s in found):
            assert not removed


@given(shards)
def test_nothing_is_removed_from_a_line_without_a_commit_of_the_newest_epoch_but_what_is_beyond_the_count(
    found: list[Shard],
) -> None:
    old = [shard for shard in found if shard.epoch < 3]
    starts = [EpochStart(epoch=1, restored=None), EpochStart(epoch=3, restored=SnapshotId(1, 25))]
    assert removable(old, starts=starts, keep=100) == []


def test_keys_of_both_forms_name_the_same_shard() -> None:
    shard = Shard(3, 40, 2)
    assert parse(shard.flat_key) == parse(shard.stored_key) == shard
    assert parse("e3-s40") is None
    assert parse("notes.txt") is None
