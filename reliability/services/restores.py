"""From which snapshot does an attempt start, and is each shard of it brought to its node?

Recoveries and the second start of a job use the same: the choice, the row of the epoch, the orders, the marks.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain import restore
from reliability.domain.orders import OrderKind
from reliability.domain.restore import RestorePoint
from reliability.domain.snapshots import Copy, SnapshotId, Tier
from reliability.errors import NoRestorePoint
from reliability.models import Epoch, Failover, Job, Node, OrderRecord, Slot
from reliability.selectors import core, ledger
from reliability.services import launch, orders, snapshots


def point(job: Job, *, placement: Mapping[int, str], lost: Sequence[str], before: int) -> RestorePoint | None:
    """Return where an attempt starts from; None means from nothing, which is right only while nothing was durable.

    Raises NoRestorePoint when a snapshot was once complete on storage and none can be read any more.
    """
    try:
        return _choose(job, ledger.copies_of(job, before=before), placement, lost, before)
    except NoRestorePoint:
        if core.once_complete(job, tier=Tier.STORAGE):
            raise
        return None


def sources_of(
    job: Job, snapshot: SnapshotId, *, placement: Mapping[int, str], lost: Sequence[str], before: int
) -> RestorePoint:
    """Return where each rank reads a snapshot that was chosen before. Raises NoRestorePoint when one cannot."""
    return _choose(job, ledger.copies_of_one(job, snapshot), placement, lost, before)


def _choose(
    job: Job, copies: Iterable[Copy], placement: Mapping[int, str], lost: Sequence[str], before: int
) -> RestorePoint:
    return restore.choose(
        copies,
        starts=core.epoch_starts(job, before=before),
        placement=placement,
        lost_nodes=lost,
        distrusted=core.distrusted(job),
        ranks=job.world_size,
    )


def open_epoch(job: Job, number: int, *, snapshot: SnapshotId | None, reason: str, now: datetime) -> None:
    """Write down what an epoch restores, before anything is started in it."""
    values = {
        "reason": reason,
        "restored_epoch": snapshot.epoch if snapshot else None,
        "restored_step": snapshot.step if snapshot else None,
    }
    Epoch.objects.update_or_create(
        job=job, number=number, defaults=values, create_defaults={**values, "started_at": now}
    )
    snapshots.lower_storage_step(job, snapshot.step if snapshot else None)


def bring(
    job: Job, found: RestorePoint, *, epoch: int, key: str, failover: Failover | None = None
) -> list[OrderRecord]:
    """Have every slot's node fetch and verify the shards of its ranks, once for each key."""
    slots = [(slot, slot.node) for slot in core.slots_of(job)]
    return [_order(job, found, slot, node, epoch, key, failover) for slot, node in slots if node]


def _order(
    job: Job, found: RestorePoint, slot: Slot, node: Node, epoch: int, key: str, failover: Failover | None
) -> OrderRecord:
    ranks = [each["rank"] for each in launch.local_ranks(job, slot)]
    snapshot = found.snapshot
    return orders.issue(
        node,
        kind=OrderKind.RESTORE,
        key=f"{key}:{snapshot.epoch}-{snapshot.step}:{slot.index}:{node.name}",
        payload={
            "step": snapshot.step,
            "snapshot_epoch": snapshot.epoch,
            "ranks": [{"rank": rank, "sources": _sources(found.sources[rank])} for rank in ranks],
        },
        job=job,
        epoch=epoch,
        failover=failover,
        ttl_s=conf.cluster_policy().restore_limit_s,
    )


def _sources(copies: Iterable[Copy]) -> list[dict[str, Any]]:
    return [
        {"tier": copy.tier, "path": copy.path, "digest": copy.digest, "size_bytes": copy.size_bytes, "node": copy.node}
        for copy in copies
    ]


def mark_skipped(job: Job, order: OrderRecord, snapshot: SnapshotId) -> None:
    """A copy that was passed over for a slower one was no good either; the one that was used was read whole."""
    if not orders.succeeded(order) or order.kind != OrderKind.RESTORE:
        return
    brought = (order.result.get("result") or {}).get("ranks") or []
    for each in brought:
        _mark(job, order, snapshot, [{**skip, "rank": each.get("rank")} for skip in each.get("skipped") or []])
    own = [each for each in brought if isinstance(each.get("rank"), int) and not each.get("from")]
    snapshots.mark_read(job, snapshot, [(each["rank"], str(each.get("tier"))) for each in own], node=order.node)


def mark_failed(job: Job, order: OrderRecord, snapshot: SnapshotId) -> int:
    """Mark the copies because of which an order failed. Returns how many; 0 means that no copy was to blame."""
    bad = (order.result.get("result") or {}).get("bad") or []
    return snapshots.mark_bad(job, snapshot, bad, node=order.node)
