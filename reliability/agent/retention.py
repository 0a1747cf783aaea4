"""Which shard files may go? Decided by epoch and step in the lineage, never by time or name.

Rules: the newest `keep` shards of each rank in the current line stay; on storage those at or above the floor (the
newest step complete there) stay too. Shards of an abandoned line stay until the newest epoch has committed one of
its own: before that they may be all there is.
"""

from collections.abc import Iterable, Sequence

from reliability.domain.snapshots import EpochStart, SnapshotId, in_lineage, lineage_ceilings
from reliability.tiers.shards import Shard


def abandoned(shard: Shard, starts: Sequence[EpochStart]) -> bool:
    """Return whether a shard lies beside the line that the newest known epoch goes on.

    Epochs older than every known start are not judged, except by the step at which the line left them.
    """
    ceilings = lineage_ceilings(starts)
    if not ceilings:
        return False
    oldest_known = min(start.epoch for start in starts)
    if shard.epoch > max(start.epoch for start in starts):
        return False  # of an attempt that is just beginning
    for start in starts:
        restored = start.restored
        if start.epoch in ceilings and restored and restored.epoch == shard.epoch and shard.step > restored.step:
            return True
    if shard.epoch < oldest_known:
        return False
    return not in_lineage(SnapshotId(shard.epoch, shard.step), ceilings)


def removable(
    shards: Iterable[Shard], *, starts: Sequence[EpochStart], keep: int, floor: int | None = None
) -> list[Shard]:
    """Return the shards of one tier that may be removed. `floor` None: no step is protected beyond `keep`."""
    ordered = sorted(shards, reverse=True)
    result: list[Shard] = []
    for rank in {shard.rank for shard in ordered}:
        result += _removable_of_rank([shard for shard in ordered if shard.rank == rank], starts, keep, floor)
    return sorted(result)


def _removable_of_rank(
    newest_first: list[Shard], starts: Sequence[EpochStart], keep: int, floor: int | None
) -> list[Shard]:
    line = [shard for shard in newest_first if not abandoned(shard, starts)]
    beside = [shard for shard in newest_first if abandoned(shard, starts)]
    newest_epoch = max((start.epoch for start in starts), default=0)
    renewed = any(shard.epoch == newest_epoch for shard in line)
    old = [shard for shard in line[max(keep, 1) :] if floor is None or shard.step < floor]
    return old + (beside if renewed else [])
