"""Which of a job's newest snapshots can every rank read, from where, and what hangs on a single node?

Looks at few snapshots however long the job is: the newest that are whole, those that lie on storage in part (they count
when a node dies), and the newest that is complete on each tier.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Q

from reliability.domain.health import SERVING
from reliability.domain.parts import LENDING_TIERS, ShardParts
from reliability.domain.risk import Readable
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.models import Epoch, Job, ShardPart, Slot, Snapshot, SnapshotCopy, SnapshotTier
from reliability.selectors import core

NEWEST = 6
PARTLY_STORED = 4
JOBS_AT_ONCE = 60
"""Conditions of so many jobs go into one statement; a database takes no more than a thousand."""


@dataclass
class Coverage:
    """The snapshots looked at, what can be read of each, and when it was taken. `began_at`: start of the attempt."""

    readable: dict[SnapshotId, Readable] = field(default_factory=dict)
    taken_at: dict[SnapshotId, datetime] = field(default_factory=dict)
    began_at: datetime | None = None


def coverages(jobs: Sequence[Job], slots: Mapping[int, Iterable[Slot]]) -> dict[int, Coverage]:
    """Return for each job, by primary key, what is covered. Five queries for up to JOBS_AT_ONCE jobs."""
    found = {job.pk: Coverage() for job in jobs}
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        _fill(found, jobs[start : start + JOBS_AT_ONCE], slots)
    return found


def _fill(found: Mapping[int, Coverage], jobs: Sequence[Job], slots: Mapping[int, Iterable[Slot]]) -> None:
    keys = [job.pk for job in jobs]
    lines, began = core.ceilings_of(keys), _began(keys)
    wanted = Q(pk__in=[])
    for job in jobs:
        found[job.pk].began_at = began.get(job.pk)
        if job.pk in lines:
            wanted |= _wanted(job, core.is_in(lines[job.pk]))
    rows = Snapshot.objects.filter(wanted, distrusted=False).order_by()
    where: dict[int, tuple[int, SnapshotId]] = {}
    for key, job_id, epoch, step, taken_at in rows.values_list("pk", "job_id", "epoch", "step", "created_at"):
        snapshot = SnapshotId(epoch, step)
        where[key] = job_id, snapshot
        found[job_id].taken_at[snapshot] = taken_at
        found[job_id].readable[snapshot] = Readable()
    _add_copies(found, where, jobs, slots)


def _wanted(job: Job, line: Q) -> Q:
    """Return the condition for the snapshots of one job that are looked at."""
    ranks = job.world_size
    whole = Snapshot.objects.filter(line, job=job, held__gte=ranks, distrusted=False).order_by("-step", "-epoch")
    any_of = Snapshot.objects.filter(line, job=job).order_by("-step", "-epoch")
    tiers = SnapshotTier.objects.filter(line, job=job).order_by("-step", "-epoch")
    partly = tiers.filter(tier=Tier.STORAGE, ranks__gt=0)
    wanted = Q(pk__in=whole.values("pk")[:NEWEST]) | Q(pk__in=any_of.values("pk")[:1])
    wanted |= Q(pk__in=partly.values("snapshot_id")[:PARTLY_STORED])
    for tier in Tier:
        complete = tiers.filter(tier=tier, ranks=ranks, snapshot__distrusted=False)
        wanted |= Q(pk__in=complete.values("snapshot_id")[:1])
    return wanted


def _add_copies(
    found: Mapping[int, Coverage],
    where: Mapping[int, tuple[int, SnapshotId]],
    jobs: Iterable[Job],
    slots: Mapping[int, Iterable[Slot]],
) -> None:
    per_node = {job.pk: job.ranks_per_node for job in jobs}
    placed = [
        (job.pk, slot.index, slot.node) for job in jobs for slot in slots.get(job.pk, ()) if slot.node is not None
    ]
    runs_on = {(job, index): node.name for job, index, node in placed}
    serving = {node.name for _, _, node in placed if node.health in SERVING}
    lenders: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    copies = SnapshotCopy.objects.filter(snapshot__in=list(where), state=CopyState.COMMITTED).order_by()
    for key, rank, tier, node, digest in copies.values_list("snapshot_id", "rank", "tier", "node__name", "digest"):
        job_id, snapshot = where[key]
        place = runs_on.get((job_id, rank // per_node[job_id]), "")
        readable = found[job_id].readable[snapshot]
        readable.add(rank, tier, node or "", runs_on=place, serves=node in serving)
        if node in serving and tier in LENDING_TIERS:
            lenders[key].append((rank, node, digest))
    _add_lent(found, where, lenders)


def _add_lent(
    found: Mapping[int, Coverage],
    where: Mapping[int, tuple[int, SnapshotId]],
    lenders: Mapping[int, Sequence[tuple[int, str, str]]],
) -> None:
    """Count in what can be put together from what other ranks hold, where commits told of parts."""
    parts: dict[int, dict[int, ShardParts]] = defaultdict(dict)
    rows = ShardPart.objects.filter(snapshot__in=list(lenders)).annotate(headless=Q(head__isnull=True)).order_by()
    for key, *values in rows.values_list("snapshot_id", *_PART, "headless"):
        told = dict(zip(_PART, values, strict=False))
        parts[key][values[0]] = ShardParts(snapshot=where[key][1], head=not values[-1], **told)
    for key, by_rank in parts.items():
        readable = found[where[key][0]].readable[where[key][1]]
        for rank, wanted in by_rank.items():
            for other, node, digest in lenders[key] if wanted.can_be_made else ():
                theirs = by_rank.get(other)
                if other != rank and theirs is not None and theirs.digest == digest and wanted.same_bits(theirs):
                    readable.lend(rank, node)


_PART = ("rank", "digest", "size_bytes", "shared_at", "shared_bytes", "shared_digest", "sharded_bytes", "group")


def _began(jobs: Iterable[int]) -> dict[int, datetime]:
    """Return since when the newest attempt of each job trains, or was begun."""
    rows = Epoch.objects.filter(job__in=jobs).order_by("number")
    return {job: running or started for job, started, running in rows.values_list("job_id", "started_at", "running_at")}
