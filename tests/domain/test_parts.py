"""What can be put together from what others hold, and that ranks which should hold the same bits do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.parts import Replica, ShardParts, differing
from reliability.domain.restore import choose
from reliability.domain.snapshots import CopyState, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import NoRestorePoint
from tests.domain.test_restore import FIRST, NODES, Job, jobs, shard

RANKS = 2


def told(step: int, rank: int, *, epoch: int = 1, shared: str = "same", **given: object) -> ShardParts:
    values = {"sharded_bytes": 0, "group": "", "head": True, "digest": "blake2b:00", "shared_bytes": 4096}
    return ShardParts(
        snapshot=SnapshotId(epoch, step), rank=rank, size_bytes=10_000, shared_at=4096, shared_digest=shared,
        **{**values, **given},
    )  # fmt: skip


def lost_node_and_a_survivor(parts: list[ShardParts], serving: set[str] | None = None, **given: object) -> object:
    """Rank 1's node is lost, its slot moved to s1; both saved step 120 in memory and 100 on storage."""
    copies = [shard(100, 0), shard(100, 1), shard(120, 0, Tier.MEMORY, "n0"), shard(120, 1, Tier.MEMORY, "n1")]
    return choose(
        copies, starts=FIRST, placement={0: "n0", 1: "s1"}, lost_nodes={"n1"}, distrusted=(), ranks=RANKS,
        parts=parts, serving={"n0"} if serving is None else serving, **given,
    )  # fmt: skip


def test_a_data_parallel_job_loses_no_step_with_a_node() -> None:
    point = lost_node_and_a_survivor([told(120, 0), told(120, 1)])
    assert point.snapshot.step == 120
    source = point.sources[1][0]
    assert isinstance(source, Replica)
    assert (source.node, source.lender.rank, source.rank, source.tier) == ("n0", 0, 1, Tier.MEMORY)
    assert "Rank 1 from the memory of rank 0 on n0." in point.reasons


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="nothing told"),
        pytest.param([told(120, 0), told(120, 1, head=False)], id="no head"),
        pytest.param([told(120, 0), told(120, 1, sharded_bytes=1)], id="a piece of its own"),
        pytest.param([told(120, 0), told(120, 1, shared="other")], id="other bits"),
        pytest.param([told(120, 0, digest="blake2b:11"), told(120, 1)], id="the lender's bytes are others by now"),
        pytest.param([told(120, 0, epoch=2), told(120, 1)], id="another attempt"),
        pytest.param([told(120, 0, shared_bytes=0), told(120, 1, shared_bytes=0)], id="nothing replicated"),
    ],
)
def test_what_cannot_be_put_together_bit_by_bit_is_not(parts: list[ShardParts]) -> None:
    assert lost_node_and_a_survivor(parts).snapshot.step == 100


def test_a_survivor_that_serves_nobody_lends_nothing() -> None:
    assert lost_node_and_a_survivor([told(120, 0), told(120, 1)], serving=set()).snapshot.step == 100


def test_the_fastest_source_comes_first() -> None:
    """A partner's copy here, another's memory, a partner's elsewhere, own SSD, another's, storage."""
    everywhere = [shard(10, 1, tier, node) for tier in (Tier.MEMORY, Tier.PARTNER, Tier.SSD) for node in ("n0", "n1")]
    copies = [shard(10, 0), shard(10, 1), *everywhere, shard(10, 0, Tier.MEMORY, "n0")]
    copies = [copy for copy in copies if (copy.rank, copy.tier, copy.node) != (1, Tier.MEMORY, "n1")]
    point = choose(
        copies, starts=FIRST, placement={0: "n0", 1: "n1"}, lost_nodes=(), distrusted=(), ranks=RANKS,
        parts=[told(10, 0), told(10, 1)], serving={"n0", "n1"},
    )  # fmt: skip
    assert [(each.tier, each.node, isinstance(each, Replica)) for each in point.sources[1]] == [
        (Tier.PARTNER, "n1", False),
        (Tier.MEMORY, "n0", False),
        (Tier.MEMORY, "n0", True),
        (Tier.PARTNER, "n0", False),
        (Tier.SSD, "n1", False),
        (Tier.SSD, "n0", False),
        (Tier.STORAGE, "", False),
    ]


def test_lost_ranks_do_not_all_ask_the_same_survivor() -> None:
    ranks = range(8)
    copies = [shard(10, rank, Tier.MEMORY, f"m{rank // 4}") for rank in ranks]
    point = choose(
        copies, starts=FIRST, placement={rank: "m0" if rank < 4 else "s1" for rank in ranks}, lost_nodes={"m1"},
        distrusted=(), ranks=8, parts=[told(10, rank) for rank in ranks], serving={"m0"},
    )  # fmt: skip
    assert len({point.sources[rank][0].lender.rank for rank in (4, 5, 6, 7)}) == 4


def test_ranks_that_differ_are_named_with_the_step() -> None:
    odd = [told(10, rank, shared="a" if rank == 2 else "b") for rank in range(4)]
    (found,) = differing([*odd, told(20, 0), told(20, 1)])
    assert (found.snapshot.step, found.ranks, found.of) == (10, (2,), 4)
    assert "rank 2 differs" in found.sentence


def test_groups_are_compared_apart() -> None:
    parts = [told(10, rank, group=f"g{rank % 2}", shared=f"bits of {rank % 2}") for rank in range(4)]
    assert differing(parts) == []


def test_what_is_not_replicated_is_not_compared() -> None:
    assert differing([told(10, rank, shared_bytes=0, shared=str(rank)) for rank in range(3)]) == []


@st.composite
def parts_of_a_job(draw: st.DrawFn) -> list[ShardParts]:
    found = {}
    for epoch in (1, 2, 3):
        for step in (10, 20, 30, 40):
            for rank in range(RANKS):
                if draw(st.booleans()):
                    shared, head = draw(st.sampled_from("ab")), draw(st.booleans())
                    digest = draw(st.sampled_from(["blake2b:00", "blake2b:11"]))
                    found[epoch, step, rank] = told(step, rank, epoch=epoch, shared=shared, head=head, digest=digest)
    return list(found.values())


def can_read(job: Job, parts: list[ShardParts], serving: set[str], snapshot: SnapshotId, rank: int) -> bool:
    """The rule in other words: a whole copy that is reached, or one that lends with the very bits."""
    home = job.placement[rank]
    reached = {home, *serving} - job.lost
    good = [copy for copy in job.copies if copy.snapshot == snapshot and copy.state is CopyState.COMMITTED]
    if any(copy.rank == rank and (copy.tier is Tier.STORAGE or copy.node in reached) for copy in good):
        return True
    by_rank = {each.rank: each for each in parts if each.snapshot == snapshot}
    mine = by_rank.get(rank)
    if mine is None or not mine.head:
        return False
    return any(
        copy.rank != rank and copy.tier in (Tier.MEMORY, Tier.SSD) and copy.node in reached
        and (theirs := by_rank.get(copy.rank)) is not None
        and theirs.shared_digest == mine.shared_digest and theirs.digest == copy.digest
        for copy in good
    )  # fmt: skip


@given(jobs, parts_of_a_job(), st.sets(st.sampled_from(NODES)))
def test_the_point_is_the_newest_in_the_line_that_every_rank_can_read_and_no_other(
    job: Job, parts: list[ShardParts], serving: set[str]
) -> None:
    ceilings = lineage_ceilings(job.starts)
    best = max(
        (
            (copy.snapshot.step, copy.snapshot.epoch)
            for copy in job.copies
            if in_lineage(copy.snapshot, ceilings)
            and all(can_read(job, parts, serving, copy.snapshot, rank) for rank in range(RANKS))
        ),
        default=None,
    )
    try:
        point = choose(
            job.copies, starts=job.starts, placement=job.placement, lost_nodes=job.lost, distrusted=(), ranks=RANKS,
            parts=parts, serving=serving,
        )  # fmt: skip
    except NoRestorePoint:
        assert best is None
        return
    assert (point.snapshot.step, point.snapshot.epoch) == best
    assert in_lineage(point.snapshot, ceilings)
    for rank, sources in point.sources.items():
        for copy in sources:
            assert copy.snapshot == point.snapshot
            assert copy.node not in job.lost or copy.tier is Tier.STORAGE
            assert copy.rank == rank


@given(jobs, parts_of_a_job(), st.sets(st.sampled_from(NODES)), st.sampled_from(NODES))
def test_one_more_node_that_serves_never_leads_to_an_older_step(
    job: Job, parts: list[ShardParts], serving: set[str], more: str
) -> None:
    def step(serving: set[str]) -> int:
        given = {"starts": job.starts, "placement": job.placement, "lost_nodes": job.lost, "distrusted": ()}
        try:
            return choose(job.copies, ranks=RANKS, parts=parts, serving=serving, **given).snapshot.step
        except NoRestorePoint:
            return -1

    assert step(serving | {more}) >= step(serving)
