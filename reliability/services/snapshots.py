"""What does the ledger say of the training state? Rows come from commit reports alone; nothing is found on disk."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q

from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import InvalidInput
from reliability.models import Job, Node, Rank, Snapshot, SnapshotCopy
from reliability.selectors import core
from reliability.services import dispatch

STATE_OF_PROBLEM = {"digest_mismatch": CopyState.CORRUPT, "corrupt": CopyState.CORRUPT}
"""What a copy that could not be used becomes, by error code; every other code means that it is lost."""

NO_FAULT_OF_THE_COPY = frozenset({"tier_unreachable", "tier_full", "timeout"})
"""Errors after which the same copy may well be read later."""


def record_copy(job: Job, node: Node, body: Mapping[str, Any], *, at: datetime) -> SnapshotCopy:
    """Keep a committed shard. A repeat for the same place replaces size, path and digest.

    Raises InvalidInput when the rank is not of this job or does not run on the node that reports.
    """
    rank = body["rank"]
    owner = Rank.objects.filter(job=job, rank=rank).values_list("slot__node_id", flat=True).first()
    if rank >= job.world_size or owner != node.pk:
        raise InvalidInput("rank", f"{rank} of job {job.name} does not run on {node.name}")
    snapshot, _ = Snapshot.objects.get_or_create(
        job=job, epoch=body["snapshot_epoch"], step=body["step"], defaults={"created_at": at}
    )
    tier = Tier(body["tier"])
    copy, _ = SnapshotCopy.objects.update_or_create(
        snapshot=snapshot,
        rank=rank,
        tier=tier,
        node=None if tier is Tier.STORAGE else node,
        defaults={
            "path": body["path"],
            "size_bytes": body["size_bytes"],
            "digest": body["digest"],
            "state": CopyState.COMMITTED,
            "stall_s": body["stall_s"],
            "drain_s": body["drain_s"],
            "committed_at": at,
        },
    )
    if tier is Tier.STORAGE:
        raise_storage_step(job, snapshot)
    dispatch.changed(f"job:{job.pk}", "overview")
    return copy


def raise_storage_step(job: Job, snapshot: Snapshot) -> None:
    """Note the newest step that is complete on storage, once this snapshot is."""
    held = SnapshotCopy.objects.filter(snapshot=snapshot, tier=Tier.STORAGE, state=CopyState.COMMITTED)
    if held.values("rank").distinct().count() < job.world_size:
        return
    found = core.complete_snapshots(job, tier=Tier.STORAGE)
    if found:
        Job.objects.filter(pk=job.pk).update(storage_step=found[0].step)


def lower_storage_step(job: Job, step: int | None) -> None:
    """After going back to an older step, newer ones on storage must not make agents clear the older away."""
    newer = Q(storage_step__gt=step) if step is not None else Q(storage_step__isnull=False)
    Job.objects.filter(newer, pk=job.pk).update(storage_step=step)


def mark_bad(job: Job, snapshot: SnapshotId, problems: Iterable[Mapping[str, Any]], *, node: Node) -> int:
    """Mark copies that a node could not use; each problem is {rank, tier, code}. Returns how many were marked."""
    marked = 0
    for problem in problems:
        code = str(problem.get("code", ""))
        if code in NO_FAULT_OF_THE_COPY or problem.get("rank") is None:
            continue
        tier = str(problem.get("tier", ""))
        copies = SnapshotCopy.objects.filter(
            snapshot__job=job,
            snapshot__epoch=snapshot.epoch,
            snapshot__step=snapshot.step,
            rank=problem["rank"],
            tier=tier,
            state=CopyState.COMMITTED,
        )
        if tier != Tier.STORAGE:
            copies = copies.filter(node=node)
        marked += copies.update(state=STATE_OF_PROBLEM.get(code, CopyState.LOST))
    return marked


def distrust(job: Job, snapshot: SnapshotId, *, reason: str) -> None:
    """Never restore this snapshot again."""
    Snapshot.objects.filter(job=job, epoch=snapshot.epoch, step=snapshot.step).update(
        distrusted=True, distrust_reason=reason
    )


def lose_local_copies(node: Node, job: Job, tiers: Iterable[str]) -> int:
    """Note that what lay on tiers of a node is gone (it lost power, or its container was removed)."""
    copies = SnapshotCopy.objects.filter(snapshot__job=job, node=node, tier__in=list(tiers))
    return copies.filter(state=CopyState.COMMITTED).update(state=CopyState.LOST)
