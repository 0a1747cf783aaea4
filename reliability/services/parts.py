"""What did a commit say of the parts of a shard, and do the ranks that should hold the same bits hold them?"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from reliability.domain.parts import Difference, ShardParts, differing
from reliability.domain.snapshots import SnapshotId
from reliability.errors import InvalidInput
from reliability.models import Job, ShardPart, Snapshot

KEPT = 8
"""Parts are kept of so many of the newest snapshots: a recovery goes back to these or to storage."""


def record(job: Job, snapshot: Snapshot, body: Mapping[str, Any]) -> Difference | None:
    """Keep what a commit in memory says of its parts; return in what ranks differ when this report shows it.

    A repeat without the head leaves the one that is kept. Raises InvalidInput for a head that is none.
    """
    told = body["parts"]
    values = {
        "digest": body["digest"],
        "size_bytes": body["size_bytes"],
        **{name: told[name] for name in _TOLD},
    }
    head = _head(body.get("head"))
    row = ShardPart.objects.filter(snapshot=snapshot, rank=body["rank"]).first()
    if row is not None and row.digest == body["digest"]:
        head = head or (bytes(row.head) if row.head is not None else None)
    ShardPart.objects.update_or_create(snapshot=snapshot, rank=body["rank"], defaults={**values, "head": head})
    if row is not None:
        return None
    group = ShardPart.objects.filter(snapshot=snapshot, group=told["group"])
    if not group.exclude(rank=body["rank"]).exists():
        _forget_old(job)
    same = {"shared_digest": told["shared_digest"], "shared_bytes": told["shared_bytes"]}
    if not group.exclude(**same).exists():
        return None
    return next(iter(differing(map(as_domain, group.select_related("snapshot").defer("head")))), None)


_TOLD = ("shared_at", "shared_bytes", "shared_digest", "sharded_bytes", "group")


def _head(text: str | None) -> bytes | None:
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("body.head", "is not base64", hint="Send it as the agent's report does.") from error


def _forget_old(job: Job) -> None:
    newest = ShardPart.objects.filter(snapshot__job=job).order_by("-snapshot__epoch", "-snapshot__step")
    kept = list(newest.values_list("snapshot_id", flat=True).distinct()[:KEPT])
    ShardPart.objects.filter(snapshot__job=job).exclude(snapshot__in=kept).delete()


def of(job: Job) -> list[ShardParts]:
    """Return the parts that are known of the shards of a job."""
    rows = ShardPart.objects.filter(snapshot__job=job).select_related("snapshot").defer("head")
    with_head = set(rows.exclude(head=None).values_list("pk", flat=True))
    return [as_domain(row, head=row.pk in with_head) for row in rows]


def as_domain(row: ShardPart, *, head: bool = False) -> ShardParts:
    """Return a row as the domain's value; `head`: whether its head is kept."""
    return ShardParts(
        snapshot=SnapshotId(row.snapshot.epoch, row.snapshot.step),
        rank=row.rank,
        digest=row.digest,
        size_bytes=row.size_bytes,
        shared_at=row.shared_at,
        shared_bytes=row.shared_bytes,
        shared_digest=row.shared_digest,
        sharded_bytes=row.sharded_bytes,
        group=row.group,
        head=head,
    )


def heads(job: Job, snapshot: SnapshotId, ranks: Iterable[int]) -> dict[int, str]:
    """Return the kept heads of shards by rank, as orders carry them."""
    rows = ShardPart.objects.filter(snapshot__job=job, snapshot__epoch=snapshot.epoch, snapshot__step=snapshot.step)
    found = rows.filter(rank__in=list(ranks)).exclude(head=None).values_list("rank", "head")
    return {rank: base64.b64encode(bytes(head)).decode() for rank, head in found if head is not None}


def forget_head(job: Job, snapshot: SnapshotId, rank: int) -> int:
    """A shard put together with this head was not the shard that was committed: it is not tried again."""
    rows = ShardPart.objects.filter(snapshot__job=job, snapshot__epoch=snapshot.epoch, snapshot__step=snapshot.step)
    return rows.filter(rank=rank).exclude(head=None).update(head=None)
