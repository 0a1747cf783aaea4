"""STARTING and VERIFYING: do all ranks run in the new epoch, and is each past its first step?"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain.budget import Verdict
from reliability.domain.failover import Event
from reliability.domain.snapshots import SnapshotId
from reliability.models import Failover, OrderRecord, Rank, Snapshot
from reliability.selectors import core
from reliability.services import launch, orders, snapshots
from reliability.services.failovers import budget, effects, endings, holding, placing, restoring
from reliability.services.failovers.moves import Outcome

RESTORE_MISMATCH = 86
"""Exit code of a rank whose restore file did not verify."""
SETTLE_S = 2.0
"""So long the end of a rank that suffers from another's waits for that one's."""


def starting(failover: Failover, now: datetime) -> Outcome | None:
    """Start every slot once in this epoch, not before the back-off is over."""
    if failover.start_after is not None and now < failover.start_after:
        return None
    snapshot = restoring.chosen(failover)
    restore = {"step": snapshot.step, "snapshot_epoch": snapshot.epoch} if snapshot else None
    started = [
        launch.start(slot, job=failover.job, epoch=failover.to_epoch, restore=restore, failover=failover)
        for slot in core.slots_of(failover.job)
    ]
    for order in started:
        if not orders.is_open(order) and not orders.succeeded(order):
            return _failed_start(failover, order)
    if not all(orders.succeeded(order) for order in started):
        return None
    return Outcome(Event.STARTED, {"epoch": failover.to_epoch, "step": failover.restore_step})


def _failed_start(failover: Failover, order: OrderRecord) -> Outcome:
    error = orders.error_of(order)
    detail = {"node": order.node.name, "reason": error["message"], **error}
    moved = any(move["to"] == order.node.name for move in failover.moves)
    if moved or _failed_before(failover, order):
        placing.refuse(failover, order.node.name, error["message"])
        return Outcome(Event.STANDBY_REFUSED, detail)
    return _again(failover, Event.START_FAILED, detail)


def _failed_before(failover: Failover, order: OrderRecord) -> bool:
    """A node on which the start fails twice does not get it a third time."""
    others = OrderRecord.objects.filter(failover=failover, node=order.node, kind=order.kind).exclude(pk=order.pk)
    return others.filter(state__in=(OrderRecord.State.FAILED, OrderRecord.State.REFUSED)).exists()


def verifying(failover: Failover, now: datetime) -> Outcome | None:
    """Wait for the first step of every rank; what a rank says it restored must be what was chosen."""
    launch.settle_plain(failover.job, epoch=failover.to_epoch)
    ranks = list(Rank.objects.filter(job_id=failover.job_id).order_by("rank"))
    for rank in ranks:
        if rank.epoch == failover.to_epoch and rank.state == Rank.State.FAILED:
            return _rank_failed(failover, rank, now)
        if _passed(rank, failover) and not _restored_as_chosen(rank, failover):
            reason = f"Rank {rank.rank} restored step {rank.restored_step}, not {failover.restore_step}."
            return _again(failover, Event.VERIFY_FAILED, {"rank": rank.rank, "reason": reason})
    if all(_passed(rank, failover) for rank in ranks):
        return Outcome(Event.VERIFIED, {"first_steps": {str(rank.rank): rank.first_step for rank in ranks}})
    waited = (now - failover.state_since).total_seconds()
    if waited >= conf.cluster_policy().verify_limit_s:
        late = [rank.rank for rank in ranks if not _passed(rank, failover)]
        reason = f"No first step of rank {', '.join(map(str, late))} within {waited:.0f} s."
        return _again(failover, Event.VERIFY_FAILED, {"reason": reason})
    return None


def _passed(rank: Rank, failover: Failover) -> bool:
    """A rank is past its first step, or ended well because nothing was left to do."""
    done = rank.epoch == failover.to_epoch and rank.state == Rank.State.EXITED
    return rank.first_step_epoch == failover.to_epoch or done


def _restored_as_chosen(rank: Rank, failover: Failover) -> bool:
    if rank.first_step_epoch != failover.to_epoch or rank.restored_step is None:
        return True
    if failover.restore_step is None:
        return rank.restored_step <= 0
    return rank.restored_step == failover.restore_step


def _rank_failed(failover: Failover, rank: Rank, now: datetime) -> Outcome | None:
    end = endings.of_rank(failover, rank)
    if endings.is_consequence(end) and (now - end.at).total_seconds() < SETTLE_S:
        return None  # what it is a consequence of is told in a moment, and decides
    decision = budget.decide(failover.job, end)
    detail = {
        "rank": rank.rank,
        "exit_code": rank.exit_code,
        "reason": f"Rank {rank.rank} ended with {rank.exit_code}.",
        "wait_s": decision.wait_s,
    }
    if decision.verdict is Verdict.NO_PROGRESS:
        holding.no_progress(failover.job, failover.incident, end, decision)
        return Outcome(
            Event.GAVE_UP, {**detail, "step": failover.restore_step, "reason": decision.reason, effects.WAITS: True}
        )
    over = decision.reason if decision.verdict is Verdict.USED_UP else endings.held_by_table(end)
    if over:
        return Outcome(Event.GAVE_UP, {**detail, "step": failover.restore_step, "reason": over})
    snapshot = restoring.chosen(failover)
    if snapshot is not None and (rank.exit_code == RESTORE_MISMATCH or _failed_from(failover, snapshot)):
        reason = f"Rank {rank.rank} ended with {rank.exit_code} after restoring it (failover {failover.pk})."
        snapshots.distrust(failover.job, snapshot, reason=reason)
        detail["distrusted_step"] = snapshot.step
    if not end.counts:
        return _again(failover, Event.VERIFY_FAILED, detail)
    tried = {"step": failover.restore_step, "epoch": failover.to_epoch}
    return Outcome(Event.VERIFY_FAILED, {**tried, **detail})  # how often is a matter of the restart budget


def _failed_from(failover: Failover, snapshot: SnapshotId) -> bool:
    """Return whether an attempt of this recovery already failed after restoring the same snapshot."""
    known = Snapshot.objects.filter(job=failover.job, epoch=snapshot.epoch, step=snapshot.step, distrusted=False)
    before = failover.events.filter(event=Event.VERIFY_FAILED, detail__step=snapshot.step)
    return known.exists() and before.exists()


def _again(failover: Failover, event: Event, detail: Mapping[str, Any]) -> Outcome:
    detail = {"step": failover.restore_step, "epoch": failover.to_epoch, **detail}
    if failover.attempt >= conf.cluster_policy().max_attempts:
        return Outcome(Event.GAVE_UP, {**detail, "reason": f"{failover.attempt} attempts failed. {detail['reason']}"})
    return Outcome(event, detail)
