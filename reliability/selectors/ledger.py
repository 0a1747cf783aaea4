"""Among which copies of the training state is a restore point found? The newest of the line, however long it is."""

from django.db.models import Count, Q, QuerySet

from reliability.domain.snapshots import Copy, CopyState, SnapshotId, Tier
from reliability.models import Job, Snapshot, SnapshotCopy
from reliability.selectors import core


def copies_of(job: Job, *, before: int | None = None) -> list[Copy]:
    """Return the copies of the newest snapshots of the line, among which a restore point is found, as domain values.

    All that are newer than the oldest of these, complete or not: they tell why a newer one was not taken.
    """
    line = Snapshot.objects.filter(core.in_line(job, before=before), job=job)
    floors = [_floor_of(line, job, Q()), _floor_of(line, job, Q(copies__tier=Tier.STORAGE))]
    which = line if None in floors else line.filter(step__gte=min(floor for floor in floors if floor is not None))
    rows = SnapshotCopy.objects.filter(snapshot__in=which).select_related("snapshot", "node")
    return [
        Copy(
            snapshot=SnapshotId(row.snapshot.epoch, row.snapshot.step),
            rank=row.rank,
            tier=Tier(row.tier),
            node=row.node.name if row.node else "",
            path=row.path,
            size_bytes=row.size_bytes,
            digest=row.digest,
            state=CopyState(row.state),
        )
        for row in rows
    ]


def _floor_of(line: QuerySet[Snapshot], job: Job, where: Q) -> int | None:
    """Return the step of the last of the NEWEST_COMPLETE newest complete snapshots, None when there are fewer."""
    which = where & Q(copies__state=CopyState.COMMITTED)
    held = line.filter(distrusted=False).annotate(held=Count("copies__rank", filter=which, distinct=True))
    steps = held.filter(held=job.world_size).order_by("-step", "-epoch").values_list("step", flat=True)
    return next(iter(steps[core.NEWEST_COMPLETE - 1 : core.NEWEST_COMPLETE]), None)
