"""The restore point: the newest step every rank can read, and never one that is not there."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.restore import RestorePoint, choose
from reliability.domain.snapshots import Copy, CopyState, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import InvalidInput, NoRestorePoint

FIRST = (EpochStart(epoch=1, restored=None),)


def shard(
    step: int,
    rank: int,
    tier: Tier = Tier.STORAGE,
    node: str = "",
    epoch: int = 1,
    state: CopyState = CopyState.COMMITTED,
) -> Copy:
    return Copy(
        snapshot=SnapshotId(epoch, step),
        rank=rank,
        tier=tier,
        node=node,
        path=f"e{epoch}/s{step}-r{rank}.{tier}.{node}",
        size_bytes=10,
        digest="blake2b:00",
        state=state,
    )


def chosen(
    copies: list[Copy],
    *,
    starts: tuple[EpochStart, ...] = FIRST,
    placement: dict[int, str] | None = None,
    lost: set[str] | None = None,
    distrusted: set[SnapshotId] | None = None,
    ranks: int = 2,
) -> RestorePoint:
    return choose(
        copies,
        starts=starts,
        placement=placement if placement is not None else {0: "n0", 1: "n1"},
        lost_nodes=lost or set(),
        distrusted=distrusted or set(),
        ranks=ranks,
    )


def test_a_survivor_reads_its_memory_and_the_moved_rank_reads_storage() -> None:
    copies = [shard(100, rank) for rank in (0, 1)] + [
        shard(100, 0, Tier.MEMORY, "n0"),
        shard(100, 0, Tier.SSD, "n0"),
        shard(100, 1, Tier.MEMORY, "n1"),
    ]
    point = chosen(copies, placement={0: "n0", 1: "s1"}, lost={"n1"})
    assert [copy.tier for copy in point.sources[0]] == [Tier.MEMORY, Tier.SSD, Tier.STORAGE]
    assert [copy.tier for copy in point.sources[1]] == [Tier.STORAGE]
    assert "Rank 0 from memory." in point.reasons
    assert "Rank 1 from storage." in point.reasons


def test_a_newer_step_in_memory_alone_is_of_no_use_to_a_moved_rank() -> None:
    copies = [shard(100, 0), shard(100, 1), shard(120, 0, Tier.MEMORY, "n0"), shard(120, 1, Tier.MEMORY, "n1")]
    in_place = chosen(copies)
    assert in_place.snapshot.step == 120
    moved = chosen(copies, placement={0: "n0", 1: "s1"}, lost={"n1"})
    assert moved.snapshot.step == 100
    assert "rank 1" in moved.skipped[0]
    assert "lost node n1" in moved.skipped[0]


def test_a_step_with_one_shard_missing_does_not_exist() -> None:
    copies = [shard(1600, rank) for rank in range(8)] + [shard(1820, rank) for rank in range(7)]
    point = chosen(copies, placement={}, ranks=8)
    assert point.snapshot.step == 1600
    assert "no copy of it was ever committed" in point.skipped[0]


def test_corrupt_steps_are_passed_over_on_all_ranks() -> None:
    bad = CopyState.CORRUPT
    copies = [shard(418, 0), shard(418, 1), shard(420, 0), shard(420, 1, state=bad), shard(422, 0, state=bad)]
    point = chosen(copies)
    assert point.snapshot.step == 418
    assert "corrupt" in point.skipped[1]


def test_a_distrusted_snapshot_is_passed_over() -> None:
    copies = [shard(step, rank) for step in (200, 303) for rank in (0, 1)]
    point = chosen(copies, distrusted={SnapshotId(1, 303)})
    assert point.snapshot.step == 200
    assert "distrusted" in point.skipped[0]


def test_steps_of_an_abandoned_line_are_passed_over_however_new_they_are() -> None:
    """Epoch 2 began at step 100, so what epoch 1 saved beyond it belongs to no history that goes on."""
    starts = (EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=SnapshotId(1, 100)))
    copies = [shard(step, rank) for step in (100, 150) for rank in (0, 1)] + [shard(120, 0, epoch=2)]
    point = chosen(copies, starts=starts)
    assert point.snapshot == SnapshotId(1, 100)
    assert any("abandoned" in told and "150" in told for told in point.skipped)


def test_a_start_from_nothing_abandons_all_that_was_before() -> None:
    starts = (EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=None))
    with pytest.raises(NoRestorePoint, match="abandoned"):
        chosen([shard(100, 0), shard(100, 1)], starts=starts)


def test_shards_of_two_attempts_are_never_mixed() -> None:
    starts = (EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=SnapshotId(1, 50)))
    copies = [shard(50, 0), shard(50, 1), shard(100, 0, epoch=1), shard(100, 1, epoch=2)]
    assert chosen(copies, starts=starts).snapshot.step == 50


def test_with_no_copies_at_all_the_error_says_so() -> None:
    with pytest.raises(NoRestorePoint, match="No snapshot was ever committed"):
        chosen([])


def test_a_rank_whose_node_is_not_known_yet_reads_storage_only() -> None:
    copies = [shard(10, 0), shard(10, 1), shard(20, 0), shard(20, 1, Tier.SSD, "n1")]
    assert chosen(copies, placement={0: "n0"}).snapshot.step == 10


def test_a_lost_node_is_not_read_even_when_a_rank_was_to_run_on_it() -> None:
    copies = [shard(10, 0), shard(10, 1), shard(20, 0), shard(20, 1, Tier.MEMORY, "n1"), shard(20, 1, Tier.SSD, "n1")]
    assert chosen(copies).snapshot.step == 20
    assert chosen(copies, lost={"n1"}).snapshot.step == 10


def test_no_ranks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ranks"):
        chosen([], ranks=0)


NODES = ["n0", "n1", "s1"]
tiers = st.sampled_from(Tier)


@st.composite
def copies_of_a_job(draw: st.DrawFn, state: CopyState | None = None) -> Copy:
    tier = draw(tiers)
    return shard(
        step=draw(st.sampled_from([10, 20, 30, 40])),
        rank=draw(st.integers(0, 1)),
        tier=tier,
        node="" if tier is Tier.STORAGE else draw(st.sampled_from(NODES)),
        epoch=draw(st.integers(1, 3)),
        state=state or draw(st.sampled_from([CopyState.COMMITTED] * 4 + list(CopyState))),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[EpochStart, ...]:
    starts = [EpochStart(epoch=1, restored=None)]
    for epoch in range(2, draw(st.integers(1, 3)) + 1):
        before = draw(st.one_of(st.none(), st.integers(1, epoch - 1)))
        step = draw(st.sampled_from([10, 20, 30, 40]))
        starts.append(EpochStart(epoch=epoch, restored=None if before is None else SnapshotId(before, step)))
    return tuple(starts)


@dataclass(frozen=True)
class Job:
    """What is known of a job when it must be recovered."""

    copies: list[Copy]
    starts: tuple[EpochStart, ...]
    placement: dict[int, str]
    lost: set[str]


jobs = st.builds(
    Job,
    copies=st.lists(copies_of_a_job(), min_size=4, max_size=30),
    starts=histories(),
    placement=st.fixed_dictionaries({0: st.sampled_from(NODES), 1: st.sampled_from(NODES)}),
    lost=st.sets(st.sampled_from(NODES), max_size=2),
)


def chosen_or_none(job: Job) -> RestorePoint | None:
    try:
        return chosen(job.copies, starts=job.starts, placement=job.placement, lost=job.lost)
    except NoRestorePoint:
        return None


@given(jobs)
def test_a_restore_point_lies_in_the_lineage_and_every_rank_has_a_readable_source(job: Job) -> None:
    point = chosen_or_none(job)
    if point is None:
        return
    assert in_lineage(point.snapshot, lineage_ceilings(job.starts))
    assert set(point.sources) == {0, 1}
    for rank, sources in point.sources.items():
        assert sources
        assert [copy.tier for copy in sources] == sorted((copy.tier for copy in sources), key=list(Tier).index)
        for copy in sources:
            assert (copy.snapshot, copy.rank, copy.state) == (point.snapshot, rank, CopyState.COMMITTED)
            assert copy.tier is Tier.STORAGE or (copy.node == job.placement[rank] and copy.node not in job.lost)


@given(jobs, st.lists(copies_of_a_job(), max_size=10))
def test_more_copies_never_lead_to_an_older_step(job: Job, more: list[Copy]) -> None:
    before, after = chosen_or_none(job), chosen_or_none(replace(job, copies=job.copies + more))
    if before is not None:
        assert after is not None
        assert after.snapshot.step >= before.snapshot.step


@given(jobs)
def test_the_order_in_which_copies_are_listed_does_not_matter(job: Job) -> None:
    assert chosen_or_none(job) == chosen_or_none(replace(job, copies=job.copies[::-1]))


@given(jobs)
def test_a_restore_point_that_proves_bad_is_followed_by_another_one(job: Job) -> None:
    """A copy marked corrupt is never offered again, so falling back ends."""
    point = chosen_or_none(job)
    if point is None:
        return
    used = point.sources[0]
    worse = [replace(copy, state=CopyState.CORRUPT) if copy in used else copy for copy in job.copies]
    again = chosen_or_none(replace(job, copies=worse))
    assert again is None or again.snapshot != point.snapshot
