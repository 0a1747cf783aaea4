"""What does the ledger say of the training state? Rows come from commit reports alone; nothing is found on disk."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from reliability.domain.orders import OrderKind
from reliability.domain.snapshots import CopyState, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import InvalidInput
from reliability.models import Job, Node, OrderRecord, Rank, Snapshot, SnapshotCopy
from reliability.selectors import core
from reliability.services import dispatch
from reliability.tiers import choosing

STATE_OF_PROBLEM = {"digest_mismatch": CopyState.CORRUPT, "corrupt": CopyState.CORRUPT}
"""What a copy that could not be used becomes, by error code; every other code means that it is lost."""

FLOOR_LOOKS_AT = 100

NO_FAULT_OF_THE_COPY = frozenset({"tier_unreachable", "tier_full", "tier_conflict", "timeout"})
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
    if tier is Tier.STORAGE:
        _check_address(job, str(body["path"]))
    place = {"snapshot": snapshot, "rank": rank, "tier": tier, "node": None if tier is Tier.STORAGE else node}
    copy = SnapshotCopy.objects.filter(**place).first() or SnapshotCopy(**place)
    brought_back = snapshot.epoch < job.epoch and tier is not Tier.STORAGE
    if copy.state == CopyState.CORRUPT and copy.digest == body["digest"] and not brought_back:
        return copy  # the same message again: what was found out since stands
    copy.path, copy.size_bytes, copy.digest = body["path"], body["size_bytes"], body["digest"]
    copy.state, copy.committed_at = CopyState.COMMITTED, at
    if not brought_back:  # a restore verifies and writes: neither is what a save costs
        copy.stall_s, copy.drain_s = body["stall_s"], body["drain_s"]
    copy.save()
    if tier is Tier.STORAGE:
        raise_storage_step(job, snapshot)
    dispatch.changed(f"job:{job.pk}", "overview")
    return copy


def _check_address(job: Job, path: str) -> None:
    """Raise InvalidInput for an address that is not below the job's own: nodes are told to read from there."""
    own = f"{job.storage_dir.rstrip('/')}/{job.name}/"
    if choosing.is_url(path) and not path.startswith(own):
        raise InvalidInput("path", f"is not below {own}", hint="A copy on storage lies below the job's storage_dir.")


def raise_storage_step(job: Job, snapshot: Snapshot) -> None:
    """Note the newest step that is complete on storage, once this snapshot is."""
    held = SnapshotCopy.objects.filter(snapshot=snapshot, tier=Tier.STORAGE, state=CopyState.COMMITTED)
    if held.values("rank").distinct().count() < job.world_size:
        return
    found = core.complete_snapshots(job, tier=Tier.STORAGE)
    if found:
        Job.objects.filter(pk=job.pk).update(storage_step=found[0].step)


def local_floors(jobs: Iterable[Job]) -> dict[str, int]:
    """Return for each job the newest step of its line of which every rank has a copy on an SSD or on storage.

    A job without such a step is left out. Looks only at the newest snapshots: every heartbeat asks for this.
    """
    floors = {}
    for job in jobs:
        rows = Snapshot.objects.filter(job=job, distrusted=False).order_by("-step", "-epoch")
        ceilings = lineage_ceilings(core.epoch_starts(job))
        newest = rows.values_list("pk", "epoch", "step")[:FLOOR_LOOKS_AT]
        in_line = {pk: step for pk, epoch, step in newest if in_lineage(SnapshotId(epoch, step), ceilings)}
        held = SnapshotCopy.objects.filter(
            snapshot__in=in_line, tier__in=(Tier.SSD, Tier.STORAGE), state=CopyState.COMMITTED
        )
        ranks = held.values_list("snapshot").annotate(ranks=Count("rank", distinct=True))
        steps = [in_line[pk] for pk, count in ranks if count >= job.world_size]
        if steps:
            floors[job.name] = max(steps)
    return floors


def lower_storage_step(job: Job, step: int | None) -> None:
    """After going back to an older step, newer ones on storage must not make agents clear the older away."""
    newer = Q(storage_step__gt=step) if step is not None else Q(storage_step__isnull=False)
    Job.objects.filter(newer, pk=job.pk).update(storage_step=step)


def mark_bad(job: Job, snapshot: SnapshotId, problems: Iterable[Mapping[str, Any]], *, node: Node) -> int:
    """Mark copies that a node could not use; each problem is {rank, tier, code}. Returns how many were marked.

    Of shared storage only a node is believed that has a part in the job or was told to restore from there.
    """
    marked, believed = 0, _may_judge_storage(job, node)
    for problem in problems:
        code = str(problem.get("code", ""))
        if code in NO_FAULT_OF_THE_COPY or problem.get("rank") is None:
            continue
        tier = str(problem.get("tier", ""))
        if tier == Tier.STORAGE and not believed:
            continue
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
    if marked:
        _recompute_storage_step(job)
    return marked


def _may_judge_storage(job: Job, node: Node) -> bool:
    if job.slots.filter(node=node).exists():
        return True
    return OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.RESTORE, epoch=job.epoch).exists()


def _recompute_storage_step(job: Job) -> None:
    """A step that is not complete on storage any more must not let agents clear older ones away."""
    found = core.complete_snapshots(job, tier=Tier.STORAGE)
    lower_storage_step(job, found[0].step if found else None)


def note_removed(job: Job, snapshot: SnapshotId) -> int:
    """A person removed a snapshot from storage; returns how many copies that were."""
    copies = SnapshotCopy.objects.filter(
        snapshot__job=job, snapshot__epoch=snapshot.epoch, snapshot__step=snapshot.step, tier=Tier.STORAGE
    )
    removed = copies.update(state=CopyState.DELETED)
    _recompute_storage_step(job)
    dispatch.changed(f"job:{job.pk}", "overview")
    return removed


def distrust(job: Job, snapshot: SnapshotId, *, reason: str) -> None:
    """Never restore this snapshot again."""
    Snapshot.objects.filter(job=job, epoch=snapshot.epoch, step=snapshot.step).update(
        distrusted=True, distrust_reason=reason
    )


def lose_local_copies(node: Node, job: Job, tiers: Iterable[str]) -> int:
    """Note that what lay on tiers of a node is gone (it lost power, or its container was removed)."""
    copies = SnapshotCopy.objects.filter(snapshot__job=job, node=node, tier__in=list(tiers))
    return copies.filter(state=CopyState.COMMITTED).update(state=CopyState.LOST)
