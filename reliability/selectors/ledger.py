"""Among which copies of the training state is a restore point found? The newest of the line, however long it is.

Everything here looks at a bounded number of snapshots, found through what is counted of each (SnapshotTier): a job may
have taken ten thousand.
"""

from collections.abc import Iterable

from django.db.models import Q, QuerySet

from reliability.domain.snapshots import Copy, CopyState, SnapshotId, Tier
from reliability.models import Job, Snapshot, SnapshotCopy, SnapshotTier
from reliability.selectors import core

NEWEST_OF_ANY = 20
"""So many of the very newest are looked at as well, whole or not: they tell why a newer one was not taken."""


def copies_of(job: Job, *, before: int | None = None) -> list[Copy]:
    """Return the copies of the newest snapshots of the line, among which a restore point is found, as domain values."""
    line = core.in_line(job, before=before)
    trusted = Snapshot.objects.filter(line, job=job, distrusted=False)
    wanted = {
        *newest(trusted.filter(held__gte=job.world_size), core.NEWEST_COMPLETE),
        *newest_on(job, line, Tier.STORAGE, core.NEWEST_COMPLETE),
        *newest(Snapshot.objects.filter(line, job=job), NEWEST_OF_ANY),
    }
    return as_domain(SnapshotCopy.objects.filter(snapshot__in=wanted))


def copies_of_one(job: Job, snapshot: SnapshotId) -> list[Copy]:
    """Return every copy of one snapshot as domain values."""
    rows = SnapshotCopy.objects.filter(snapshot__job=job, snapshot__epoch=snapshot.epoch, snapshot__step=snapshot.step)
    return as_domain(rows)


def as_domain(rows: QuerySet[SnapshotCopy]) -> list[Copy]:
    """Return rows as the domain knows them."""
    snapshot = ("snapshot__epoch", "snapshot__step")
    columns = (*snapshot, "rank", "tier", "node__name", "path", "size_bytes", "digest", "state")
    return [
        Copy(
            snapshot=SnapshotId(epoch, step),
            rank=rank,
            tier=Tier(tier),
            node=node or "",
            path=path,
            size_bytes=size,
            digest=digest,
            state=CopyState(state),
        )
        for epoch, step, rank, tier, node, path, size, digest, state in rows.order_by().values_list(*columns)
    ]


def newest(rows: QuerySet[Snapshot], most: int) -> Iterable[int]:
    """Return the primary keys of the newest of these snapshots, by step."""
    return rows.order_by("-step", "-epoch").values_list("pk", flat=True)[:most]


def newest_on(job: Job, line: Q, tier: Tier, most: int) -> Iterable[int]:
    """Return the primary keys of the newest snapshots of a line that are complete on a tier."""
    rows = SnapshotTier.objects.filter(line, job=job, tier=tier, ranks__gte=job.world_size)
    return rows.order_by("-step", "-epoch").values_list("snapshot_id", flat=True)[:most]
