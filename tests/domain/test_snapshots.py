"""Snapshots: which are complete, which may be removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.snapshots import (
    Copy,
    CopyState,
    EpochStart,
    SnapshotId,
    Tier,
    complete_steps,
    in_lineage,
    lineage_ceilings,
    to_delete,
)
from reliability.errors import InvalidInput
from tests.domain.test_restore import copies_of_a_job, histories, shard


def steps_of(copies: list[Copy]) -> list[int]:
    return sorted({copy.snapshot.step for copy in copies})


def test_only_steps_with_a_committed_copy_of_every_rank_are_complete() -> None:
    copies = [
        shard(10, 0),
        shard(10, 1),
        shard(20, 0),
        shard(20, 1, state=CopyState.LOST),
        shard(30, 0, Tier.MEMORY, "n0"),
        shard(30, 1, Tier.SSD, "n1"),
    ]
    assert [each.step for each in complete_steps(copies, 2)] == [30, 10]
    assert [each.step for each in complete_steps(copies, 2, Tier.STORAGE)] == [10]


def test_retention_keeps_the_newest_and_all_that_storage_does_not_hold_yet() -> None:
    copies = [shard(step, 0, Tier.SSD, "n0") for step in (10, 20, 30, 40, 50)]
    assert steps_of(to_delete(copies, 1, 40)) == [10, 20, 30]
    assert steps_of(to_delete(copies, 4, 40)) == [10]
    assert to_delete(copies, 1, None) == []


def test_retention_never_removes_the_step_that_storage_holds() -> None:
    copies = [shard(step, 0) for step in (10, 20)]
    assert to_delete(copies, 1, 10) == []


def test_an_abandoned_line_is_removed_and_does_not_count_among_those_kept() -> None:
    starts = (EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=SnapshotId(1, 10)))
    copies = [shard(10, 0), shard(90, 0), shard(20, 0, epoch=2), shard(30, 0, epoch=2)]
    doomed = to_delete(copies, 2, 30, lineage_ceilings(starts))
    assert [copy.snapshot for copy in doomed] == [SnapshotId(1, 10), SnapshotId(1, 90)]


def test_a_corrupt_copy_does_not_take_a_place_among_those_kept() -> None:
    copies = [shard(10, 0), shard(20, 0, state=CopyState.CORRUPT)]
    assert steps_of(to_delete(copies, 1, 30)) == [20]


def test_keeping_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="keep"):
        to_delete([], 0, 10)


def test_a_history_that_turns_back_twice_keeps_what_leads_to_now() -> None:
    starts = (
        EpochStart(epoch=1, restored=None),
        EpochStart(epoch=2, restored=SnapshotId(1, 50)),
        EpochStart(epoch=3, restored=SnapshotId(1, 40)),
    )
    ceilings = lineage_ceilings(starts)
    assert ceilings == {3: None, 1: 40}
    assert in_lineage(SnapshotId(1, 40), ceilings)
    assert not in_lineage(SnapshotId(1, 50), ceilings)
    assert not in_lineage(SnapshotId(2, 10), ceilings)


@given(
    st.lists(copies_of_a_job(), max_size=30), histories(), st.integers(1, 3), st.sampled_from([None, 10, 20, 30, 40])
)
def test_retention_keeps_the_newest_of_the_lineage_and_all_above_the_floor(
    copies: list[Copy], starts: tuple[EpochStart, ...], keep: int, floor: int | None
) -> None:
    ceilings = lineage_ceilings(starts)
    doomed = {copy.snapshot for copy in to_delete(copies, keep, floor, ceilings)}
    current = {
        copy.snapshot for copy in copies if copy.state is CopyState.COMMITTED and in_lineage(copy.snapshot, ceilings)
    }
    newest = sorted((each.step, each.epoch) for each in current)[-keep:]
    assert not doomed & {SnapshotId(epoch, step) for step, epoch in newest}
    assert floor is not None or not doomed
    assert not {each for each in doomed & current if floor is not None and each.step >= floor}
