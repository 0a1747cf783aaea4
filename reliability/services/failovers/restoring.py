"""RESTORING: does every node hold a verified copy of each of its ranks' shards of one restore point?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain.failover import Event
from reliability.domain.report_bodies import OF_COPIES
from reliability.domain.restore import RestorePoint
from reliability.domain.snapshots import SnapshotId
from reliability.errors import NoRestorePoint
from reliability.models import Epoch, Failover, Node, OrderRecord, Report
from reliability.selectors import core
from reliability.services import launch, orders, restores
from reliability.services.failovers import placing, spoilt
from reliability.services.failovers.moves import Outcome

OUTAGE = frozenset({"tier_unreachable", "timeout"})
"""What a node answers when the place of the copies cannot be reached: neither the copies nor the node are to blame."""
READ_FIRST_S = 5.0
"""What nodes have told of their copies by now is read first, unless that takes longer than this."""
PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0


def restoring(failover: Failover, now: datetime) -> Outcome | None:
    """Choose the restore point once an attempt, and have it brought to every node."""
    begun = Epoch.objects.filter(job=failover.job, number=failover.to_epoch).exists()
    if not begun and _unread(failover, now):
        return None
    try:
        point = _point(failover)
    except NoRestorePoint as error:
        event = Event.SNAPSHOT_REFUSED if begun else Event.GAVE_UP
        return Outcome(event, {"reason": f"{error.message} {error.hint}", "step": failover.restore_step})
    _choose(failover, point, now)
    prepared = [launch.prepare(failover.job, node) for node in moved_nodes(failover)]
    brought = [] if point is None else _bring(failover, point)
    refused = _failed_prepare(failover, prepared)
    if refused is not None or brought is None:
        return refused
    return _judge(failover, prepared, brought, now)


def _unread(failover: Failover, now: datetime) -> bool:
    """Return whether nodes told of copies that are not in the ledger yet: the newest of them may be among these."""
    since = failover.state_since
    waiting = Report.objects.filter(state=Report.State.NEW, job_name=failover.job.name, kind__in=OF_COPIES)
    return (now - since).total_seconds() < READ_FIRST_S and waiting.filter(received_at__lte=since).exists()


def moved_nodes(failover: Failover) -> list[Node]:
    """Return the standbys that hold slots of this recovery."""
    names = [move["to"] for move in failover.moves]
    return list(Node.objects.filter(name__in=names).order_by("name"))


def chosen(failover: Failover) -> SnapshotId | None:
    """Return the snapshot that this attempt restores, None for a start from nothing."""
    if failover.restore_step is None or failover.restore_epoch is None:
        return None
    return SnapshotId(failover.restore_epoch, failover.restore_step)


def _point(failover: Failover) -> RestorePoint | None:
    """Return where each rank reads its shard; what an attempt chose first stays chosen."""
    job = failover.job
    placement = core.placement(job)
    lost = [move["from"] for move in failover.moves]
    if not Epoch.objects.filter(job=job, number=failover.to_epoch).exists():
        spoilt.distrust(failover.incident, job)
        return restores.point(job, placement=placement, lost=lost, before=failover.to_epoch)
    snapshot = chosen(failover)
    if snapshot is None:
        return None
    return restores.sources_of(job, snapshot, placement=placement, lost=lost, before=failover.to_epoch)


def _choose(failover: Failover, point: RestorePoint | None, now: datetime) -> None:
    """Write down what this attempt restores."""
    snapshot = point.snapshot if point else None
    failover.restore_epoch = snapshot.epoch if snapshot else None
    failover.restore_step = snapshot.step if snapshot else None
    failover.save(update_fields=["restore_epoch", "restore_step"])
    reason = failover.incident.summary
    restores.open_epoch(failover.job, failover.to_epoch, snapshot=snapshot, reason=reason, now=now)


def _bring(failover: Failover, point: RestorePoint) -> list[OrderRecord] | None:
    key = f"restore:{failover.pk}:{failover.to_epoch}:{failover.attempt}"
    return restores.bring(failover.job, point, epoch=failover.to_epoch, key=key, failover=failover)


def _failed_prepare(failover: Failover, prepared: Sequence[OrderRecord]) -> Outcome | None:
    for order in prepared:
        if not orders.is_open(order) and not orders.succeeded(order):
            return _refuse_node(failover, order)
    return None


def _refuse_node(failover: Failover, order: OrderRecord) -> Outcome:
    error = orders.error_of(order)
    placing.refuse(failover, order.node.name, error["message"])
    return Outcome(Event.STANDBY_REFUSED, {"node": order.node.name, "reason": error["message"], **error})


def _judge(
    failover: Failover, prepared: Sequence[OrderRecord], brought: Sequence[OrderRecord], now: datetime
) -> Outcome | None:
    snapshot = chosen(failover)
    for order in brought:
        if snapshot is not None:
            restores.mark_skipped(failover.job, order, snapshot)
        if orders.is_open(order) or orders.succeeded(order):
            continue
        if not _outage(order, brought):
            return _failed_restore(failover, order, snapshot)
        if not _again_in_time(failover, order, now):
            return Outcome(Event.GAVE_UP, _unreachable(failover, order))
    if not all(orders.succeeded(order) for order in (*prepared, *brought)):
        return None
    return Outcome(Event.RESTORED, {"step": failover.restore_step, "epoch": failover.restore_epoch})


def _outage(order: OrderRecord, brought: Sequence[OrderRecord]) -> bool:
    """Return whether the storage is the likelier cause than the node: it could not be reached, or nobody answered.

    A node that alone does not answer while others brought their shards is itself what is wrong.
    """
    if order.state == OrderRecord.State.EXPIRED:
        return len(brought) > 1 and not any(orders.succeeded(each) for each in brought)
    bad = (order.result.get("result") or {}).get("bad") or []
    if any(each.get("from") for each in bad):
        return False  # another node could not be read from: it is passed over, and perhaps that is all
    codes = {str(each.get("code")) for each in bad} or {orders.error_of(order)["code"]}
    return codes <= OUTAGE


def _again_in_time(failover: Failover, order: OrderRecord, now: datetime) -> bool:
    """Have a shard brought once more, each time after a longer pause. Returns False when the time for it is over."""
    if (now - failover.state_since).total_seconds() >= conf.cluster_policy().restore_limit_s:
        return False
    same = OrderRecord.objects.filter(failover=failover, node=order.node, kind=order.kind, epoch=order.epoch)
    tried = same.filter(ended_at__gte=failover.state_since).count()
    pause_s = min(PAUSE_S * 2 ** max(0, tried - 1), LONGEST_PAUSE_S)
    if order.ended_at is None or (now - order.ended_at).total_seconds() >= pause_s:
        orders.forget(OrderRecord.objects.filter(pk=order.pk))
    return True


def _unreachable(failover: Failover, order: OrderRecord) -> dict[str, Any]:
    error = orders.error_of(order)
    limit_s = conf.cluster_policy().restore_limit_s
    reason = (
        f"The snapshots could not be reached for {limit_s:g} s ({order.node.name}: {error['message']}). "
        "No node is blamed. Start the job again when the storage is back."
    )
    return {**error, "node": order.node.name, "step": failover.restore_step, "reason": reason}


def _failed_restore(failover: Failover, order: OrderRecord, snapshot: SnapshotId | None) -> Outcome:
    error = orders.error_of(order)
    marked = restores.mark_failed(failover.job, order, snapshot) if snapshot else 0
    moved = any(move["to"] == order.node.name for move in failover.moves)
    detail = {"node": order.node.name, "reason": error["message"], "step": failover.restore_step, **error}
    if not marked and (moved or _failed_before(failover, order)):
        placing.refuse(failover, order.node.name, error["message"])
        return Outcome(Event.STANDBY_REFUSED, detail)
    if failover.attempt >= conf.cluster_policy().max_attempts:
        return Outcome(Event.GAVE_UP, {**detail, "reason": f"No restore point could be read: {error['message']}"})
    return Outcome(Event.SNAPSHOT_REFUSED, {**detail, "copies_marked": marked})


def _failed_before(failover: Failover, order: OrderRecord) -> bool:
    """A node that fails twice without a bad copy is itself what is wrong."""
    failed = OrderRecord.objects.filter(failover=failover, node=order.node, kind=order.kind).exclude(pk=order.pk)
    return failed.filter(state__in=(OrderRecord.State.FAILED, OrderRecord.State.REFUSED)).exists()
