"""Which shards of one tier may be removed? Those that the server names, by the rules that a person set.

A server that names none leaves it to the nodes: by domain/snapshots.to_delete a node then judges its own.

A node knows how the attempts began that it took part in, no others. Until the newest attempt has committed a shard
of its own here nothing is removed at all: before that the older ones may be all there is.
"""

from collections.abc import Iterable, Sequence

from reliability.agent.floors import FRESH_S, Floors
from reliability.domain.snapshots import Copy, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings, to_delete
from reliability.tiers.shards import Shard


def abandoned(shard: Shard, starts: Sequence[EpochStart]) -> bool:
    """Return whether a shard lies beside the line that the newest known attempt goes on."""
    line = _line([shard], starts)
    return line is not None and not in_lineage(SnapshotId(shard.epoch, shard.step), line)


def named(safe: Floors, tier: Tier, *, epoch: int, now: float) -> list[Shard]:
    """Return the shards that the server named to be removed from a tier, where the newest attempt known is `epoch`.

    None of what it said in an older attempt or a while ago (`now` is of agent.clock.steady), and none of its own newest
    attempt from the floor on, whatever it said.
    """
    if safe.may_go is None or safe.epoch < epoch or not 0 <= now - safe.said_at <= FRESH_S:
        return []
    floor = safe.ssd if tier is Tier.SSD else safe.storage
    found = [Shard(*map(int, place)) for place in safe.may_go.get(tier, ())]
    return [shard for shard in found if floor is not None and not (shard.epoch == safe.epoch and shard.step >= floor)]


def removable(
    shards: Iterable[Shard], *, starts: Sequence[EpochStart], keep: int, floor: int | None, tier: Tier = Tier.SSD
) -> list[Shard]:
    """Return the shards of one tier of this node that may be removed. `floor` None: the server vouches for no step."""
    found = sorted(shards)
    newest = max((start.epoch for start in starts), default=0)
    if not any(shard.epoch >= newest for shard in found):
        return []
    by_copy = {_copy(shard, tier): shard for shard in found}
    return [by_copy[copy] for copy in to_delete(by_copy, keep, floor, _line(found, starts))]


def _copy(shard: Shard, tier: Tier) -> Copy:
    snapshot = SnapshotId(shard.epoch, shard.step)
    return Copy(snapshot=snapshot, rank=shard.rank, tier=tier, node="", path="", size_bytes=0, digest="")


def _line(shards: Iterable[Shard], starts: Sequence[EpochStart]) -> dict[int, int | None] | None:
    """Return the ceilings of the current line over the epochs of these shards; None when no start is known.

    Of epochs before the first known start only those are judged that the line is known to have left at some step;
    an epoch above all known starts belongs to an attempt that is just beginning.
    """
    if not starts:
        return None
    line = lineage_ceilings(starts)
    known = {start.epoch for start in starts}
    for start in starts:
        if start.epoch in line and start.restored and start.restored.epoch not in known:
            line[start.restored.epoch] = start.restored.step
    unjudged = {shard.epoch for shard in shards} - line.keys()
    return line | {epoch: None for epoch in unjudged if not min(known) <= epoch <= max(known)}
