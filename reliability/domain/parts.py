"""Whose shard can be put together again from what others hold?

A shard whose state is replicated and local alone is its head, which travelled with the commit report, and the
replicated part of any rank that holds the same bits (docs/adr/0016-parts.md). Ranks of one group whose replicated
parts differ are a finding: nothing but the very bits that a rank committed is ever put into its shard.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reliability.domain.snapshots import Copy, CopyState, SnapshotId, Tier

LENDING_TIERS = (Tier.MEMORY, Tier.SSD)
"""Where a survivor's shard may be read for its replicated part."""


@dataclass(frozen=True, kw_only=True)
class ShardParts:
    """What one rank's commit says of its parts. Sizes and offsets in bytes.

    `digest` and `size_bytes` are those of the whole shard; the replicated part is `shared_bytes` from `shared_at` on.
    `sharded_bytes` is what nobody else has. `head` tells whether the server keeps what lies before the replicated part.
    """

    snapshot: SnapshotId
    rank: int
    digest: str
    size_bytes: int
    shared_at: int
    shared_bytes: int
    shared_digest: str
    sharded_bytes: int
    group: str
    head: bool

    @property
    def can_be_made(self) -> bool:
        """Whether the head and another rank's replicated part are all of it."""
        return self.head and self.sharded_bytes == 0 and self.shared_bytes > 0

    def same_bits(self, other: "ShardParts") -> bool:
        """Whether the replicated part of another rank is, bit by bit, this one's."""
        mine = (self.snapshot, self.shared_bytes, self.shared_digest)
        return mine == (other.snapshot, other.shared_bytes, other.shared_digest)


@dataclass(frozen=True, kw_only=True)
class Replica(Copy):
    """A shard that can be put together: `lender` is the other rank's copy that lends its replicated part.

    Tier, node and path are the lender's; rank, size and digest those of the shard that comes of it. `turn` sorts
    equally fast lenders, for each rank from another one on.
    """

    lender: Copy
    lender_shared_at: int
    shared_at: int
    shared_bytes: int
    turn: int


def replicas(rank: int, parts: Mapping[int, ShardParts], lenders: Iterable[Copy]) -> tuple[Replica, ...]:
    """Return from which copies of other ranks the shard of `rank` can be put together; all of one snapshot.

    `parts` by rank. A copy lends only what its rank said of these very bytes when it committed them.
    """
    wanted = parts.get(rank)
    if wanted is None or not wanted.can_be_made:
        return ()
    found = [
        (copy, theirs)
        for copy in sorted(lenders, key=lambda copy: (copy.rank, copy.path))
        if copy.state is CopyState.COMMITTED and copy.tier in LENDING_TIERS and copy.rank != rank
        if (theirs := parts.get(copy.rank)) is not None
        if theirs.digest == copy.digest and wanted.same_bits(theirs)
    ]
    return tuple(
        _made(wanted, copy, theirs, turn=(place - rank) % len(found)) for place, (copy, theirs) in enumerate(found)
    )


def _made(wanted: ShardParts, copy: Copy, theirs: ShardParts, *, turn: int) -> Replica:
    return Replica(
        snapshot=wanted.snapshot,
        rank=wanted.rank,
        tier=copy.tier,
        node=copy.node,
        path=copy.path,
        size_bytes=wanted.size_bytes,
        digest=wanted.digest,
        lender=copy,
        lender_shared_at=theirs.shared_at,
        shared_at=wanted.shared_at,
        shared_bytes=wanted.shared_bytes,
        turn=turn,
    )


@dataclass(frozen=True)
class Difference:
    """Ranks of one group that do not hold the same bits: `ranks` differ from most of the group, `group` names it."""

    snapshot: SnapshotId
    group: str
    ranks: tuple[int, ...]
    of: int

    @property
    def sentence(self) -> str:
        """Say it in words."""
        named = ", ".join(map(str, self.ranks[:8])) + (" and more" if len(self.ranks) > 8 else "")
        where = f" of group {self.group}" if self.group else ""
        return (
            f"The replicated state of rank{'s' if len(self.ranks) > 1 else ''} {named}{where} differs from that of the "
            f"others ({self.of} ranks) after step {self.snapshot.step}: what should be the same on all ranks is not."
        )


def differing(parts: Iterable[ShardParts]) -> Sequence[Difference]:
    """Return for each snapshot and group the ranks whose replicated part is not that of most of them."""
    groups: dict[tuple[SnapshotId, str], list[ShardParts]] = defaultdict(list)
    for each in parts:
        if each.shared_bytes:
            groups[each.snapshot, each.group].append(each)
    found = []
    for (snapshot, group), members in sorted(groups.items(), key=lambda item: item[0]):
        counted = Counter((each.shared_digest, each.shared_bytes) for each in members)
        if len(counted) > 1:
            usual = max(sorted(counted), key=lambda each: counted[each])
            odd = sorted(each.rank for each in members if (each.shared_digest, each.shared_bytes) != usual)
            found.append(Difference(snapshot, group, tuple(odd), len(members)))
    return found
