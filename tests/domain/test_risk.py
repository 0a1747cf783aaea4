"""From where a job would go on when a node dies: the same as the choice of a restore point comes to."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import restore, risk
from reliability.domain.risk import Readable
from reliability.domain.snapshots import Copy, EpochStart, SnapshotId, Tier
from reliability.errors import NoRestorePoint

RANKS = 3
HOMES = {0: "a", 1: "b", 2: "b"}
TIERS = (Tier.MEMORY, Tier.SSD, Tier.STORAGE)


@st.composite
def shards(draw: st.DrawFn) -> Copy:
    tier = draw(st.sampled_from(TIERS))
    step, rank = draw(st.integers(1, 4)), draw(st.integers(0, RANKS - 1))
    node = "" if tier is Tier.STORAGE else draw(st.sampled_from("abc"))
    return Copy(
        snapshot=SnapshotId(1, step), rank=rank, tier=tier, node=node, path=f"{step}-{rank}", size_bytes=1, digest="x"
    )


def readable(copies: list[Copy], serving: str = "") -> dict[SnapshotId, Readable]:
    found: dict[SnapshotId, Readable] = {}
    for copy in copies:
        each, home = found.setdefault(copy.snapshot, Readable()), HOMES[copy.rank]
        each.add(copy.rank, copy.tier, copy.node, runs_on=home, serves=copy.node in set(serving))
    return found


def chosen(copies: list[Copy], *, lost: str = "", serving: str = "") -> SnapshotId | None:
    placement = {rank: node if node != lost else "standby" for rank, node in HOMES.items()}
    starts = [EpochStart(epoch=1, restored=None)]
    try:
        return restore.choose(
            copies,
            starts=starts,
            placement=placement,
            lost_nodes={lost} - {""},
            distrusted=(),
            ranks=RANKS,
            serving=set(serving) - {lost},
        ).snapshot
    except NoRestorePoint:
        return None


@given(st.lists(shards(), max_size=40), st.sampled_from(["", "a", "abc"]))
def test_it_is_what_the_choice_of_a_restore_point_would_be(copies: list[Copy], serving: str) -> None:
    found = readable(copies, serving)
    assert risk.newest(found, RANKS) == chosen(copies, serving=serving)
    after = risk.nodes_at_risk(found, RANKS, "abc")
    assert after == {node: chosen(copies, lost=node, serving=serving) for node in "abc"}


@given(st.lists(shards(), max_size=40))
def test_a_snapshot_that_is_held_back_lacks_ranks_and_is_newer(copies: list[Copy]) -> None:
    found = readable(copies)
    best = risk.newest(found, RANKS)
    order = sorted(found, reverse=True)
    back = risk.held_back(found, RANKS, best, order)
    if back is not None:
        snapshot, lacking = back
        assert lacking
        assert best is None or snapshot.step > best.step
        assert snapshot == order[0]


def test_a_copy_that_a_neighbour_keeps_helps_while_that_neighbour_lives() -> None:
    both = Readable()
    both.add(0, "memory", "a", runs_on="a")
    both.add(0, "partner", "b", runs_on="a", serves=True)
    found = {SnapshotId(1, 1): both}
    assert risk.nodes_at_risk(found, 1, ["a", "b"]) == dict.fromkeys("ab", SnapshotId(1, 1))


@given(st.lists(shards(), max_size=12), st.sets(st.sampled_from("abc")))
def test_with_several_nodes_gone_at_once_only_what_none_of_them_holds_alone_counts(
    copies: list[Copy], gone: set[str]
) -> None:
    kept = [each for each in copies if each.node not in gone]
    found = risk.newest(readable(copies, "abc"), RANKS, without=gone)
    assert found == risk.newest(readable(kept, "abc"), RANKS)
    for node in gone if len(gone) == 1 else ():
        assert found == risk.nodes_at_risk(readable(copies, "abc"), RANKS, [node])[node]
