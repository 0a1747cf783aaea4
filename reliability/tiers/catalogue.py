"""Which snapshots of a job lie on a tier, whole or not, and which is the newest that can be read?

Works on any tier from what is stored there alone, for when there is nothing else left to ask.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reliability.domain.snapshots import SnapshotId
from reliability.errors import CopyMissing, DigestMismatch
from reliability.ports import TierStore
from reliability.tiers import shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard

Told = Callable[[int], object]
"""Called with the bytes that were read since the last call."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One snapshot of `ranks` ranks: the key of each, its bytes, and why a shard cannot be used.

    `taken_at`: Unix time by the clock of the node that saved last, None where no record says. Nothing is decided by it.
    """

    snapshot: SnapshotId
    ranks: int
    keys: Mapping[int, str]
    sizes: Mapping[int, int]
    problems: Mapping[int, str] = field(default_factory=dict)
    taken_at: float | None = None

    @property
    def whole(self) -> bool:
        """Whether every rank's shard is there and nothing is known against it."""
        return self.keys.keys() >= set(range(self.ranks)) and not self.problems

    @property
    def size_bytes(self) -> int:
        """Bytes of all its shards."""
        return sum(self.sizes.values())

    @property
    def missing(self) -> list[int]:
        """The ranks of which there is no shard."""
        return [rank for rank in range(self.ranks) if rank not in self.keys]

    def without(self, rank: int, why: str) -> "Stored":
        """Return it with what is wrong with a rank's shard."""
        return replace(self, problems={**self.problems, rank: why})


def stored(tier: TierStore, *, ranks: int = 0) -> list[Stored]:
    """Return the snapshots on a tier, newest first: by attempt, then by step.

    How many ranks they need is what the tier says, or `ranks`; without either, the highest rank that was ever seen.
    """
    keys = {shard: key for key in tier.keys("") if (shard := shards.parse(key))}
    needed = tier.ranks() or ranks or max((shard.rank + 1 for shard in keys), default=0)
    by_snapshot: dict[SnapshotId, dict[int, str]] = {}
    for shard, key in keys.items():
        by_snapshot.setdefault(SnapshotId(shard.epoch, shard.step), {})[shard.rank] = key
    newest = sorted(by_snapshot, reverse=True)
    return [_described(tier, snapshot, by_snapshot[snapshot], needed) for snapshot in newest]


def _described(tier: TierStore, snapshot: SnapshotId, keys: Mapping[int, str], ranks: int) -> Stored:
    sizes, problems, taken = {}, {}, []
    for rank, key in sorted(keys.items()):
        try:
            record = tier.record(key)
        except CopyMissing as error:  # an unusable record is one too
            problems[rank] = error.message
            continue
        sizes[rank] = int(record["size_bytes"])
        taken += [float(record["taken_at"])] if record.get("taken_at") else []
    return Stored(
        snapshot=snapshot,
        ranks=ranks,
        keys=dict(sorted(keys.items())),
        sizes=sizes,
        problems=problems,
        taken_at=max(taken, default=None),
    )


def verified(tier: TierStore, snapshot: Stored, told: Told = int) -> Stored:
    """Read every shard of a snapshot; return it with what is wrong with it. Raises TierUnreachable."""
    for rank, key in snapshot.keys.items():
        if rank in snapshot.problems:
            continue
        try:
            for piece in tier.pieces(key):
                told(len(piece))
        except (CopyMissing, DigestMismatch) as error:
            snapshot = snapshot.without(rank, error.message)
    return snapshot


def bring(tier: TierStore, snapshot: Stored, target: DirectoryTier, ranks: Iterable[int], told: Told = int) -> Stored:
    """Copy shards of a snapshot into a folder, verified, as `e<E>-s<S>-r<R>.snap` with their records.

    Returns it with what was wrong with it; a shard that is no good is not in the folder. Raises TierFull,
    TierUnreachable.
    """
    for rank in ranks:
        key = snapshot.keys[rank]
        flat = Shard(snapshot.snapshot.epoch, snapshot.snapshot.step, rank).flat_key
        try:
            record = tier.record(key)
            target.adopt(tier, key, flat, digest=record["digest"], record=record, told=told)
        except (CopyMissing, DigestMismatch, RecordUnusable) as error:
            snapshot = snapshot.without(rank, error.message)
    return snapshot


def candidates(found: Sequence[Stored], *, step: int | None = None, epoch: int | None = None) -> Iterator[Stored]:
    """Yield the snapshots that may be read, newest first: all, or those of one step, or of one attempt."""
    for each in found:
        if step in (None, each.snapshot.step) and epoch in (None, each.snapshot.epoch):
            yield each
