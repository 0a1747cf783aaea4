"""Which snapshot is tried next, on which standby, and what came of the trials so far?"""

from datetime import datetime, timedelta

from reliability.domain.failover import OPEN
from reliability.domain.health import USABLE, NodeRole
from reliability.domain.snapshots import CopyState, Tier
from reliability.models import Failover, Job, Node, Snapshot, SnapshotCopy, TrialRestore, TrialSchedule, Validation
from reliability.selectors import core

DECIDED = (TrialRestore.State.PASSED, TrialRestore.State.FAILED)
AGAIN_S = 300.0
"""A trial by schedule that decided nothing is made again after this long."""


def newest_stored(job: Job) -> Snapshot | None:
    """Return the newest snapshot of the line of which every rank has a copy on storage."""
    found = core.complete_snapshots(job, tier=Tier.STORAGE, limit=1)
    return Snapshot.objects.filter(job=job, epoch=found[0].epoch, step=found[0].step).first() if found else None


def standby_for(job: Job) -> Node | None:
    """Return the standby that a recovery would take last: free, healthy, and neither held nor busy with a check."""
    held = core.active_holds().values("node_id")
    busy = Validation.objects.filter(ended_at=None).values("node_id")
    trying = TrialRestore.objects.filter(state=TrialRestore.State.RUNNING).values("node_id")
    free = core.free_nodes().filter(role=NodeRole.STANDBY, health__in=USABLE)
    rows = free.exclude(pk__in=held).exclude(pk__in=busy).exclude(pk__in=trying)
    return rows.order_by("-tier", "name").first()


def recovering() -> bool:
    """Return whether a recovery of any job is open: then no standby is lent to a trial."""
    return Failover.objects.filter(state__in=OPEN).exists()


def copies_for(snapshot: Snapshot, node: Node) -> dict[int, list[SnapshotCopy]]:
    """Return rank -> the copies that a node can read: on storage and on its own SSD, none that is to be removed."""
    rows = SnapshotCopy.objects.filter(snapshot=snapshot, state=CopyState.COMMITTED, planned_removal=None)
    rows = rows.select_related("node")
    readable = rows.filter(tier=Tier.STORAGE) | rows.filter(tier=Tier.SSD, node=node)
    found: dict[int, list[SnapshotCopy]] = {}
    for copy in readable.order_by("rank", "tier"):
        found.setdefault(copy.rank, []).append(copy)
    return found


def is_due(schedule: TrialSchedule, newest: Snapshot, now: datetime) -> bool:
    """Return whether the schedule of a job asks for a trial of its newest stored snapshot now."""
    trials = TrialRestore.objects.filter(job=schedule.job_id)
    last = trials.filter(state__in=DECIDED).select_related("snapshot").first()
    undecided = trials.exclude(state__in=DECIDED).first()
    if undecided is not None and (now - (undecided.ended_at or now)).total_seconds() < AGAIN_S:
        return False
    if last is None:
        return True
    if last.snapshot_id == newest.pk and last.state == TrialRestore.State.FAILED:
        return False
    return _by_time(schedule, last, now) or _by_count(schedule, last)


def _by_time(schedule: TrialSchedule, last: TrialRestore, now: datetime) -> bool:
    return schedule.every_hours is not None and now - last.started_at >= timedelta(hours=schedule.every_hours)


def _by_count(schedule: TrialSchedule, last: TrialRestore) -> bool:
    """Count what has become complete on storage since, in the line that goes on."""
    if schedule.every_snapshots is None:
        return False
    limit = schedule.every_snapshots
    stored = core.complete_snapshots(Job.objects.get(pk=schedule.job_id), tier=Tier.STORAGE, limit=limit)
    tried = (last.snapshot.step, last.snapshot.epoch)
    return sum((each.step, each.epoch) > tried for each in stored) >= limit


def trials_of(job: Job, limit: int = 20) -> list[TrialRestore]:
    """Return the newest trials of a job."""
    rows = TrialRestore.objects.filter(job=job).select_related("snapshot", "node")
    return list(rows[:limit])
