"""What does each tier of a job keep, what does it hold, and what is about to go?"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Max, Q, QuerySet, Sum

from reliability.domain import retention
from reliability.domain.health import NodeHealth
from reliability.domain.retention import Held, TierRule
from reliability.domain.snapshots import CopyState, SnapshotId, Tier, lineage_ceilings
from reliability.models import Job, Node, PlannedRemoval, RetentionRule, Slot, Snapshot, SnapshotCopy, SnapshotTier
from reliability.selectors import core

PRESENT = (CopyState.COMMITTED, CopyState.CORRUPT)
"""States of copies that take up room."""
MOST_TOLD = 256
"""So many removals of one node at once go with the answer to a heartbeat; the rest follows when these are done."""


def rules_of(job: Job) -> dict[Tier, TierRule]:
    """Return what each tier of a job keeps, by its own rules or the default."""
    rows = {Tier(row.tier): row for row in RetentionRule.objects.filter(job=job)}
    return {tier: rule_of(rows[tier]) if tier in rows else retention.DEFAULTS[tier] for tier in retention.RULED}


def rule_of(row: RetentionRule) -> TierRule:
    """Return a kept rule as the domain knows it."""
    return TierRule(
        keep_newest=row.keep_newest,
        every_steps=row.every_steps,
        keep_for_s=row.keep_for_s,
        cap_bytes=row.cap_bytes,
    )


def line_of(job: Job) -> dict[int, int | None]:
    """Return the ceilings of the line of history that goes on."""
    return lineage_ceilings(core.epoch_starts(job))


def held(job: Job) -> list[Held]:
    """Return the snapshots of a job that take up room on an SSD or on storage."""
    tiers = SnapshotTier.objects.filter(Q(ranks__gt=0) | Q(corrupt__gt=0), job=job, tier__in=retention.RULED)
    rows = tiers.values_list("snapshot_id", "tier", "ranks", "size_bytes").order_by()
    fullest = _on_fullest_ssd(job)
    sizes: dict[int, dict[Tier, int]] = defaultdict(dict)
    complete: dict[int, set[Tier]] = defaultdict(set)
    for key, name, ranks, size in rows:
        tier = Tier(name)
        sizes[key][tier] = fullest.get(key, 0) if tier is Tier.SSD else size
        if ranks >= job.world_size:
            complete[key].add(tier)
    facts = Snapshot.objects.filter(pk__in=tiers.values("snapshot_id"))
    return [
        Held(
            snapshot=SnapshotId(epoch, step),
            recorded_at=created_at.timestamp(),
            size_bytes=sizes[key],
            complete=complete[key],
            durable=durable >= job.world_size,
            distrusted=distrusted,
        )
        for key, epoch, step, created_at, durable, distrusted in facts.values_list(
            "pk", "epoch", "step", "created_at", "durable", "distrusted"
        )
    ]


def _on_fullest_ssd(job: Job) -> dict[int, int]:
    """Return for each snapshot the bytes on the SSD that holds most of it: a cap is one of each node's disk."""
    copies = SnapshotCopy.objects.filter(snapshot__job=job, tier=Tier.SSD, state__in=PRESENT).order_by()
    found: dict[int, int] = {}
    for key, size in (
        copies.values("snapshot_id", "node_id").annotate(size=Sum("size_bytes")).values_list("snapshot_id", "size")
    ):
        found[key] = max(size, found.get(key, 0))
    return found


def snapshot_bytes(job: Job, tier: Tier) -> int | None:
    """Return the bytes of one snapshot on a tier, of an SSD those of one node, the largest of late; None: none yet."""
    newest = Snapshot.objects.filter(job=job).order_by("-pk").values("pk")[:5]
    copies = SnapshotCopy.objects.filter(snapshot__in=list(newest.values_list("pk", flat=True)), tier=tier).order_by()
    sums = copies.values("snapshot_id", "node_id").annotate(size=Sum("size_bytes")).aggregate(most=Max("size"))
    most: int | None = sums["most"]
    return most


def cleaners(job: Job) -> dict[int, Node]:
    """Return rank -> the node that removes its copies from storage: its own, or the first of the job's that is there.

    Without ranks whose removal nobody could carry out.
    """
    slots = Slot.objects.filter(job=job).exclude(node=None).select_related("node").order_by("index")
    there = {slot.index: slot.node for slot in slots if slot.node and slot.node.health != NodeHealth.UNREACHABLE}
    if not there:
        return {}
    first = next(iter(there.values()))
    per_node = max(job.ranks_per_node, 1)
    return {rank: there.get(rank // per_node, first) for rank in range(job.world_size)}


def told_to(node: Node) -> QuerySet[PlannedRemoval]:
    """Return what a node is to remove, in the order in which it was decided."""
    rows = PlannedRemoval.objects.filter(node=node).select_related("copy__snapshot").order_by("pk")
    return rows[:MOST_TOLD]


def jobs_with_removals(rows: Iterable[PlannedRemoval]) -> set[int]:
    """Return the primary keys of the jobs of which something is to be removed."""
    return {row.copy.snapshot.job_id for row in rows}


@dataclass(frozen=True, kw_only=True)
class TierUse:
    """One tier on a page: what it keeps, how many snapshots and bytes it holds, and how many are about to go."""

    tier: Tier
    rule: TierRule
    words: str
    default: bool
    snapshots: int
    size_bytes: int
    going: int


def uses(job: Job) -> list[TierUse]:
    """Return how each ruled tier of a job is used. Bytes on an SSD are those of the fullest node."""
    ledger, rules = held(job), rules_of(job)
    own = set(RetentionRule.objects.filter(job=job).values_list("tier", flat=True))
    going = PlannedRemoval.objects.filter(copy__snapshot__job=job).order_by()
    return [
        TierUse(
            tier=tier,
            rule=rule,
            words=retention.said(rule),
            default=tier not in own,
            snapshots=sum(tier in each.size_bytes for each in ledger),
            size_bytes=sum(each.size_bytes.get(tier, 0) for each in ledger),
            going=going.filter(copy__tier=tier).values("copy__snapshot_id").distinct().count(),
        )
        for tier, rule in rules.items()
    ]
