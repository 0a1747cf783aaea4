"""What does the ledger say of the training state? Rows come from commit reports alone; nothing is found on disk."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from reliability.domain.ledger import NEWEST_SLOTS, Standing
from reliability.domain.orders import OrderKind
from reliability.domain.snapshots import CopyState, SnapshotId, Tier, in_lineage
from reliability.errors import InvalidInput
from reliability.models import Job, Node, OrderRecord, Rank, Snapshot, SnapshotCopy, TrialRestore
from reliability.selectors import core
from reliability.services import clock, dispatch, snapshot_events, snapshot_tally
from reliability.services.snapshot_events import Move
from reliability.tiers import choosing

STATE_OF_PROBLEM = {"digest_mismatch": CopyState.CORRUPT, "corrupt": CopyState.CORRUPT}
"""What a copy that could not be used becomes, by error code; every other code means that it is lost."""

LOOKS_BACK = 8
"""So many of the newest copies of a rank in memory are looked at when one more is written."""

LONGEST_REASON = 500

READ_FROM = {Tier.SSD: Tier.MEMORY, Tier.STORAGE: Tier.SSD}
"""Where the mover that brought a copy to a tier read it, whole and with its digest."""

NO_FAULT_OF_THE_COPY = frozenset({"tier_unreachable", "tier_full", "tier_conflict", "timeout"})
"""Errors after which the same copy may well be read later."""


def record_copy(job: Job, node: Node, body: Mapping[str, Any], *, at: datetime) -> SnapshotCopy:
    """Keep a committed shard. A repeat for the same place replaces size, path and digest.

    What was found out about a copy stands until another is told of, or a restore says that it brought this one
    (`restored`): movers tell anew after each start what records alone say, and that proves nothing.
    Raises InvalidInput when the rank is not of this job or does not run on the node that reports.
    """
    rank = body["rank"]
    if rank >= job.world_size or not _may_report(job, node, body):
        raise InvalidInput("rank", f"{rank} of job {job.name} does not run on {node.name}")
    snapshot, _ = Snapshot.objects.get_or_create(
        job=job, epoch=body["snapshot_epoch"], step=body["step"], defaults={"created_at": at}
    )
    tier = Tier(body["tier"])
    if tier is Tier.STORAGE:
        _check_address(job, str(body["path"]))
    with transaction.atomic():
        gone = _written_over(job, node, snapshot, rank) if tier is Tier.MEMORY else []
        snapshot_tally.lock([snapshot.pk, *(key for _, key in gone)])
        copy = _copy_at(snapshot, rank, tier, node)
        if copy.state == CopyState.CORRUPT and copy.digest == body["digest"] and not body.get("restored"):
            return copy  # the same message again, or one from a record alone: what was found out since stands
        news = _commit(job, copy, body, at=at)
        if news and not body.get("restored"):
            _read_by_movers(copy, node, at=at)
        snapshot_tally.recount([snapshot.pk])
        if gone:
            used_again = SnapshotCopy.objects.filter(pk__in=[key for key, _ in gone])
            sentence = "Its slot in memory was used again."
            snapshot_events.move(used_again, Move(target=CopyState.DELETED, at=at, sentence=sentence))
        if tier is Tier.STORAGE:
            snapshot_tally.then(("stored", snapshot.pk), partial(_raise_storage_step, job, snapshot))
    _show(job)
    return copy


def _show(job: Job) -> None:
    snapshot_tally.then(("shown", job.pk), partial(dispatch.changed, f"job:{job.pk}", "overview"))


def _copy_at(snapshot: Snapshot, rank: int, tier: Tier, node: Node) -> SnapshotCopy:
    """Return the copy at a place, or one that is not kept yet. Whoever asks holds the snapshot's lock."""
    place = {"snapshot": snapshot, "rank": rank, "tier": tier, "node": None if tier is Tier.STORAGE else node}
    return SnapshotCopy.objects.filter(**place).first() or SnapshotCopy(**place)


def _may_report(job: Job, node: Node, body: Mapping[str, Any]) -> bool:
    """A node reports its own ranks' copies, and the partner copies that it was told to keep."""
    if body["tier"] == Tier.PARTNER:
        return core.keeps_partner_copy(job, node, body["rank"])
    owner = Rank.objects.filter(job=job, rank=body["rank"]).values_list("slot__node_id", flat=True).first()
    return bool(owner == node.pk)


def _commit(job: Job, copy: SnapshotCopy, body: Mapping[str, Any], *, at: datetime) -> bool:
    """Write the copy as it was reported; returns whether it is another than was known.

    A restore verifies and writes, and what is copied on afterwards took its time then: neither is what a save costs.
    """
    news = copy.digest != body["digest"] or copy.state != CopyState.COMMITTED or copy.pk is None
    if news:
        copy.verified_at = copy.trial_restored_at = None
        copy.changed_at = at if copy.pk is not None and copy.state != CopyState.COMMITTED else copy.changed_at
    copy.path, copy.size_bytes, copy.digest = body["path"], body["size_bytes"], body["digest"]
    copy.state, copy.problem = CopyState.COMMITTED, ""
    copy.committed_at = at if news or body.get("restored") else copy.committed_at
    if body.get("restored"):
        copy.verified_at = at  # a restore brought it here and compared its digest
    elif copy.tier == Tier.STORAGE or copy.snapshot.epoch == job.epoch:
        copy.stall_s, copy.drain_s = body["stall_s"], body["drain_s"]
        copy.superseded = min(body.get("superseded") or 0, 2**31 - 1)
    copy.save()
    return news


def _read_by_movers(copy: SnapshotCopy, node: Node, *, at: datetime) -> None:
    """Whoever wrote a copy has read the one on the tier before it whole, and found the same digest.

    The two are told in either order: sealing in memory and copying to the SSD are two threads.
    """
    same = SnapshotCopy.objects.filter(
        snapshot=copy.snapshot_id, rank=copy.rank, digest=copy.digest, state=CopyState.COMMITTED
    )
    below = READ_FROM.get(Tier(copy.tier))
    if below is not None:
        same.filter(tier=below, node=node, verified_at=None).update(verified_at=at)
    above = next((tier for tier, source in READ_FROM.items() if source == copy.tier), None)
    if above is None or copy.verified_at is not None:
        return
    if same.filter(tier=above, node=None if above is Tier.STORAGE else node).exists():
        SnapshotCopy.objects.filter(pk=copy.pk, verified_at=None).update(verified_at=at)


def _written_over(job: Job, node: Node, written: Snapshot, rank: int) -> list[tuple[int, int]]:
    """Return which of the rank's older shards in a node's memory cannot be there any more, once `written` is there.

    A rank has NEWEST_SLOTS slots at most, and the newest of the line that goes on stays until a newer one is whole;
    so a shard is gone once so many newer ones of that line are. Returns (copy, snapshot), primary keys.
    """
    same = SnapshotCopy.objects.filter(node=node, tier=Tier.MEMORY, rank=rank, state=CopyState.COMMITTED)
    rows = set(
        same.filter(snapshot__job=job)
        .exclude(snapshot=written)
        .order_by("-pk")
        .values_list("snapshot__epoch", "snapshot__step", "pk", "snapshot_id")[:LOOKS_BACK]
    )
    if len(rows) < NEWEST_SLOTS:
        return []
    ceilings = core.ceilings(job)
    gone, newer = [], 0
    for epoch, step, key, snapshot in sorted([*rows, (written.epoch, written.step, 0, written.pk)], reverse=True):
        if newer >= NEWEST_SLOTS and snapshot != written.pk:
            gone.append((key, snapshot))
        newer += in_lineage(SnapshotId(epoch, step), ceilings)
    return gone


def _check_address(job: Job, path: str) -> None:
    """Raise InvalidInput for an address that is not below the job's own: nodes are told to read from there."""
    own = f"{job.storage_dir.rstrip('/')}/{job.name}/"
    if choosing.is_url(path) and not path.startswith(own):
        raise InvalidInput("path", f"is not below {own}", hint="A copy on storage lies below the job's storage_dir.")


def _raise_storage_step(job: Job, snapshot: Snapshot) -> None:
    """Note the newest step that is complete on storage, once this snapshot is."""
    if not snapshot.tiers.filter(tier=Tier.STORAGE, ranks__gte=job.world_size).exists():
        return
    found = core.complete_snapshots(job, tier=Tier.STORAGE, limit=1)
    if found:
        Job.objects.filter(pk=job.pk).update(storage_step=found[0].step)


def local_floors(jobs: Iterable[Job]) -> dict[str, int]:
    """Return for each job the newest step of its line of which every rank has a copy on an SSD or on storage.

    A job without such a step is left out. Every heartbeat asks for this: two small queries a job.
    """
    floors = {}
    for job in jobs:
        rows = Snapshot.objects.filter(core.in_line(job), job=job, distrusted=False, durable=job.world_size)
        step = rows.order_by("-step", "-epoch").values_list("step", flat=True).first()
        if step is not None:
            floors[job.name] = step
    return floors


def lower_storage_step(job: Job, step: int | None) -> None:
    """After going back to an older step, newer ones on storage must not make agents clear the older away."""
    newer = Q(storage_step__gt=step) if step is not None else Q(storage_step__isnull=False)
    Job.objects.filter(newer, pk=job.pk).update(storage_step=step)


def mark_bad(
    job: Job,
    snapshot: SnapshotId,
    problems: Iterable[Mapping[str, Any]],
    *,
    node: Node,
    before: datetime | None = None,
) -> int:
    """Mark copies that a node could not use; each problem is {rank, tier, code}. Returns how many were marked.

    `before`: of the node's own copies only those that were committed before then, as what an order found in a place is
    not what it brought there in the end.
    One that was `never_whole` is no good wherever the same bytes lie, also where nobody is there to remove them.
    Of shared storage only a node is believed that has a part in the job or was told to restore, or to try, from there.
    """
    marked, believed, at = 0, _may_judge_storage(job, node), clock.now()
    with transaction.atomic():
        for problem in problems:
            code, tier = str(problem.get("code", "")), str(problem.get("tier", ""))
            if code in NO_FAULT_OF_THE_COPY or problem.get("rank") is None or (tier == Tier.STORAGE and not believed):
                continue
            target = STATE_OF_PROBLEM.get(code, CopyState.LOST)
            copies = _meant(_copies_of(job, snapshot).filter(rank=problem["rank"]), problem, node, before)
            sentence = f"{node.name} could not use it: {snapshot_events.told(problem)}"
            marked += snapshot_events.move(copies, Move(target=target, at=at, sentence=sentence))
        if marked:
            _recompute_storage_step(job)
    return marked


def _meant(
    of_rank: QuerySet[SnapshotCopy], problem: Mapping[str, Any], node: Node, before: datetime | None
) -> QuerySet[SnapshotCopy]:
    """Return the copies of a rank that a node found no good: one, or all of the same bytes if they never were whole."""
    there = of_rank.filter(tier=problem.get("tier", ""))
    if problem.get("tier") == Tier.STORAGE:
        return there
    own = there.filter(node=node)
    if problem.get("never_whole"):
        return of_rank.filter(digest__in=own.values("digest"))
    return own if before is None else own.filter(committed_at__lte=before)


def mark_read(job: Job, snapshot: SnapshotId, read: Iterable[tuple[int, str]], *, node: Node) -> int:
    """A restore read these (rank, tier) whole and compared the digests; returns how many copies that is news of."""
    sentence = f"A restore on {node.name} read it whole, and its digest was right."
    return snapshot_events.mark_read(job, snapshot, read, node=node, at=clock.now(), sentence=sentence)


def _copies_of(job: Job, snapshot: SnapshotId) -> QuerySet[SnapshotCopy]:
    return SnapshotCopy.objects.filter(snapshot__job=job, snapshot__epoch=snapshot.epoch, snapshot__step=snapshot.step)


def _may_judge_storage(job: Job, node: Node) -> bool:
    if job.slots.filter(node=node).exists():
        return True
    if TrialRestore.objects.filter(job=job, node=node, state=TrialRestore.State.RUNNING).exists():
        return True
    return OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.RESTORE, epoch=job.epoch).exists()


def _recompute_storage_step(job: Job) -> None:
    """A step that is not complete on storage any more must not let agents clear older ones away."""
    snapshot_tally.then(("removed", job.pk), partial(_storage_step_anew, job))


def _storage_step_anew(job: Job) -> None:
    found = core.complete_snapshots(job, tier=Tier.STORAGE, limit=1)
    lower_storage_step(job, found[0].step if found else None)


def note_removed(
    job: Job,
    snapshot: SnapshotId,
    *,
    tier: Tier = Tier.STORAGE,
    node: Node | None = None,
    ranks: Iterable[int] | None = None,
    reason: str = "It was removed to make room.",
) -> int:
    """Copies were cleared away on purpose; returns how many that is news of.

    `node` is that of a local tier; without `ranks` all of them. What was corrupt or lost there is gone as well.
    """
    copies = _copies_of(job, snapshot).filter(tier=tier)
    copies = copies if tier is Tier.STORAGE else copies.filter(node=node)
    copies = copies if ranks is None else copies.filter(rank__in=list(ranks))
    with transaction.atomic():
        removed = sum(
            snapshot_events.move(copies, Move(target=CopyState.DELETED, at=clock.now(), sentence=reason, source=source))
            for source in (CopyState.COMMITTED, CopyState.CORRUPT, CopyState.LOST)
        )
        _recompute_storage_step(job)
    _show(job)
    return removed


def distrust(job: Job, snapshot: SnapshotId, *, reason: str) -> None:
    """Never restore this snapshot again."""
    with transaction.atomic():
        rows = Snapshot.objects.filter(job=job, epoch=snapshot.epoch, step=snapshot.step, distrusted=False)
        for row in rows:
            snapshot_events.keep(row, Standing.ABANDONED, at=clock.now(), sentence=f"Distrusted: {reason}")
        rows.update(distrusted=True, distrust_reason=reason)


def distrust_by_hand(snapshot: Snapshot, *, reason: str, by: str) -> None:
    """Never restore this snapshot again, because a person says so. Raises InvalidInput, also when it is so already."""
    said = reason.strip()
    if not 1 <= len(said) <= LONGEST_REASON or not said.isprintable():
        hint = f"Write one line of at most {LONGEST_REASON} characters."
        raise InvalidInput("reason", "does not say why in one line", hint=hint)
    with transaction.atomic():
        snapshot_tally.lock([snapshot.pk])
        snapshot.refresh_from_db()
        if snapshot.distrusted:
            raise InvalidInput("snapshot", f"is distrusted already: {snapshot.distrust_reason}")
        distrust(snapshot.job, SnapshotId(snapshot.epoch, snapshot.step), reason=f"{said} ({by})")
        _recompute_storage_step(snapshot.job)
    dispatch.changed(f"job:{snapshot.job_id}", "overview")


def lose_local_copies(node: Node, job: Job, tiers: Iterable[str]) -> int:
    """Note that what lay on tiers of a node is gone (it lost power, or its container was removed)."""
    copies = SnapshotCopy.objects.filter(snapshot__job=job, node=node, tier__in=list(tiers))
    sentence = f"{node.name} does not hold it any more: it was lost, or its container was removed."
    return snapshot_events.move(copies, Move(target=CopyState.LOST, at=clock.now(), sentence=sentence))
