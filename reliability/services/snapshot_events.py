"""Keeps what happened to copies after their commit, and what was found out about them.

Every move is a compare-and-set on the copy's state under its snapshot's lock, with the event row and the new counts in
the same transaction: what is told as moved is what was moved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from reliability.domain.ledger import Standing
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.models import Job, Node, Snapshot, SnapshotCopy, SnapshotEvent
from reliability.services import dispatch, snapshot_tally

TARGET = {
    CopyState.COMMITTED: Standing.COMMITTED,
    CopyState.CORRUPT: Standing.CORRUPT,
    CopyState.LOST: Standing.LOST,
    CopyState.DELETED: Standing.REMOVED,
}
"""What an event says a copy became."""

VERIFIED = {"verified_at": Standing.VERIFIED, "trial_restored_at": Standing.TRIAL_RESTORED}


@dataclass(frozen=True, kw_only=True)
class Move:
    """What copies become, when, and why in a sentence."""

    target: CopyState
    at: datetime
    sentence: str
    source: CopyState = CopyState.COMMITTED


def move(copies: QuerySet[SnapshotCopy], how: Move) -> int:
    """Move those of the copies that are in the state `how.source`, and keep it; returns how many were moved."""
    with transaction.atomic():
        rows = copies.filter(state=how.source).order_by()
        found = _found(rows)
        if not found:
            return 0
        moved = SnapshotCopy.objects.filter(pk__in=[row[0] for row in found], state=how.source).update(
            state=how.target, problem=how.sentence[:4000], changed_at=how.at
        )
        _keep_events(found, TARGET[how.target], how.at, how.sentence)
        snapshot_tally.recount(row[1] for row in found)
    return moved


def _found(copies: QuerySet[SnapshotCopy]) -> list[tuple[Any, ...]]:
    """Lock the snapshots of these copies; return what is then still so, and not what came to others meanwhile."""
    keys = set(copies.values_list("snapshot_id", flat=True).distinct())
    snapshot_tally.lock(keys)
    return [row for row in copies.values_list("pk", "snapshot_id", "tier", "node_id", "rank") if row[1] in keys]


def mark_read(
    job: Job, snapshot: SnapshotId, read: Iterable[tuple[int, str]], *, node: Node, at: datetime, sentence: str
) -> int:
    """Keep that a node read these (rank, tier) whole with the right digest; returns how many copies that is news of."""
    return _mark(job, snapshot, read, node=node, at=at, sentence=sentence, field="verified_at")


def mark_trial_restored(
    job: Job, snapshot: SnapshotId, read: Iterable[tuple[int, str]], *, node: Node, at: datetime, sentence: str
) -> int:
    """Keep that a trial restore on a standby loaded these (rank, tier); that proves their digests as well."""
    wanted = list(read)
    _mark(job, snapshot, wanted, node=node, at=at, sentence="", field="verified_at")
    return _mark(job, snapshot, wanted, node=node, at=at, sentence=sentence, field="trial_restored_at")


def _mark(
    job: Job,
    snapshot: SnapshotId,
    read: Iterable[tuple[int, str]],
    *,
    node: Node,
    at: datetime,
    sentence: str,
    field: str,
) -> int:
    places = Q(pk__in=[])
    for rank, tier in read:
        places |= Q(rank=rank, tier=tier, node=None) if tier == Tier.STORAGE else Q(rank=rank, tier=tier, node=node)
    copies = SnapshotCopy.objects.filter(
        places,
        snapshot__job=job,
        snapshot__epoch=snapshot.epoch,
        snapshot__step=snapshot.step,
        state=CopyState.COMMITTED,
        **{f"{field}__isnull": True},
    )
    with transaction.atomic():
        found = _found(copies.order_by())
        if not found:
            return 0
        SnapshotCopy.objects.filter(pk__in=[row[0] for row in found]).update(**{field: at})
        if sentence:
            _keep_events(found, VERIFIED[field], at, sentence)
        snapshot_tally.recount(row[1] for row in found)
    dispatch.changed(f"job:{job.pk}")
    return len(found)


def _keep_events(rows: Iterable[tuple[Any, ...]], target: Standing, at: datetime, sentence: str) -> None:
    """One row for each snapshot, tier and node, with the ranks it happened to.

    A removal is told rank by rank; those of one reason gather in one row, or a long job would keep more of these than
    of its copies.
    """
    ranks: dict[tuple[int, str, int | None], list[int]] = {}
    for _, snapshot, tier, node, rank in rows:
        ranks.setdefault((snapshot, tier, node), []).append(rank)
    fresh = []
    for (snapshot, tier, node), them in ranks.items():
        place = {"snapshot_id": snapshot, "tier": tier, "node_id": node, "target": target, "sentence": sentence}
        same = SnapshotEvent.objects.filter(**place).first() if target is Standing.REMOVED else None
        if same is None:
            fresh.append(SnapshotEvent(**place, ranks=sorted(them), at=at))
        else:
            gathered = sorted({*same.ranks, *them})
            SnapshotEvent.objects.filter(pk=same.pk).update(ranks=gathered, at=at)
    SnapshotEvent.objects.bulk_create(fresh)


def keep(snapshot: Snapshot, target: Standing, *, at: datetime, sentence: str) -> None:
    """Keep what happened to a snapshot as a whole."""
    SnapshotEvent.objects.create(snapshot=snapshot, target=target, at=at, sentence=sentence)


def told(problem: Mapping[str, Any]) -> str:
    """Return what a node said of a copy that it could not use."""
    message = str(problem.get("message") or "").strip()
    return f"{problem.get('code')}: {message}" if message else str(problem.get("code"))
