"""What does each tier of a job keep, what does it hold, and what is about to go?"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min, Q, Sum

from reliability.domain import retention
from reliability.domain.failover import OPEN
from reliability.domain.health import NodeHealth
from reliability.domain.retention import Held, Removal, TierRule, Why
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.models import (
    Failover,
    Job,
    Node,
    PlannedRemoval,
    RetentionRule,
    Slot,
    Snapshot,
    SnapshotCopy,
    SnapshotTier,
    TrialRestore,
)
from reliability.selectors import core

PRESENT = (CopyState.COMMITTED, CopyState.CORRUPT)
"""States of copies that take up room."""
MOST_TOLD = 256
"""So many removals of one node at once go with the answer to a heartbeat; the rest follows when these are done."""


DECIDED_AT_ONCE = 2000
"""A page decides itself what may go while the tiers hold so many snapshots; of more it shows what is planned."""


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


def held(job: Job) -> list[Held]:
    """Return the snapshots of a job that take up room on an SSD or on storage.

    Bytes on an SSD are those on the fullest node where a cap asks for it, and else an even share: counting them reads
    every copy. Ages are read where a rule asks for them.
    """
    rows = SnapshotTier.objects.filter(_TAKES_ROOM, job=job, tier__in=retention.RULED).order_by()
    rules = rules_of(job)
    fullest = _on_fullest_ssd(job) if rules[Tier.SSD].cap_bytes else None
    ages = _recorded(job) if any(rule.keep_for_s for rule in rules.values()) else {}
    sizes: dict[int, dict[Tier, int]] = {}
    complete: dict[int, list[Tier]] = {}
    verified: dict[int, list[Tier]] = {}
    columns = ("snapshot_id", "tier", "ranks", "size_bytes", "verified")
    for key, name, ranks, size, sure in rows.values_list(*columns):
        tier = _RULED[name]
        if tier is Tier.SSD:
            size = _share(job, size) if fullest is None else fullest.get(key, 0)
        sizes.setdefault(key, {})[tier] = size
        if ranks >= job.world_size:
            complete.setdefault(key, []).append(tier)
        if sure >= job.world_size:
            verified.setdefault(key, []).append(tier)
    distrusted = set(Snapshot.objects.filter(job=job, distrusted=True).values_list("pk", flat=True))
    facts = Snapshot.objects.filter(job=job).order_by().values_list("pk", "epoch", "step", "durable")
    return [
        Held(
            snapshot=SnapshotId(epoch, step),
            recorded_at=ages.get(key),
            size_bytes=sizes[key],
            complete=complete.get(key, ()),
            durable=durable >= job.world_size,
            distrusted=key in distrusted,
            verified=verified.get(key, ()),
        )
        for key, epoch, step, durable in facts
        if key in sizes
    ]


_TAKES_ROOM = Q(ranks__gt=0) | Q(corrupt__gt=0)
_RULED = {tier.value: tier for tier in retention.RULED}


def _recorded(job: Job) -> dict[int, float]:
    """Return when each snapshot was first reported, seconds since 1970."""
    rows = Snapshot.objects.filter(job=job).order_by().values_list("pk", "created_at")
    return {key: created_at.timestamp() for key, created_at in rows}


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


def cleaners(job: Job, *, silent: Collection[int] = ()) -> dict[int, Node]:
    """Return rank -> the node that removes its copies from storage: its own, or the first of the job's that is there.

    Without ranks whose removal nobody could carry out. `silent` nodes do it only where no other could.
    """
    slots = Slot.objects.filter(job=job).exclude(node=None).select_related("node").order_by("index")
    there = {slot.index: slot.node for slot in slots if slot.node and slot.node.health != NodeHealth.UNREACHABLE}
    there = {index: node for index, node in there.items() if node.pk not in silent} or there
    if not there:
        return {}
    first = next(iter(there.values()))
    per_node = max(job.ranks_per_node, 1)
    return {rank: there.get(rank // per_node, first) for rank in range(job.world_size)}


def told_to(node: Node) -> list[PlannedRemoval]:
    """Return what a node is to remove, of each job and tier in the order in which it was decided, as much as is told.

    Nothing of a job with an open recovery, and nothing of a snapshot that is being tried. All jobs and tiers get
    their share of MOST_TOLD: what cannot be removed of one does not hold up the others.
    """
    rows = PlannedRemoval.objects.filter(node=node).exclude(
        job__in=Failover.objects.filter(state__in=OPEN).values("job_id")
    )
    rows = rows.exclude(
        snapshot__in=TrialRestore.objects.filter(state=TrialRestore.State.RUNNING).values("snapshot_id")
    )
    places = list(rows.order_by().values_list("job_id", "tier").distinct())
    share = max(MOST_TOLD // max(len(places), 1), 1)
    found = rows.select_related("job", "snapshot", "copy").order_by("pk")
    return [row for job, tier in sorted(places) for row in found.filter(job=job, tier=tier)[:share]]


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


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a page shows: each tier's use, and what goes next from each, abandoned lines first, then the oldest.

    `planned`: the ledger is long, so what goes is what the last round planned and nodes have not removed yet; more may
    follow. Otherwise it is what may go at this moment.
    """

    uses: list[TierUse]
    going: list[Removal]
    planned: bool


def outlook(job: Job, now: datetime, *, most: int) -> Outlook:
    """Return what a job's tiers hold and the first `most` snapshots that go next. Reads a bounded number of rows."""
    counted = _counted(job)
    if sum(snapshots for snapshots, _ in counted.values()) > DECIDED_AT_ONCE:
        return Outlook(uses=_uses(job, counted), going=_planned(job, most), planned=True)
    ledger = held(job)
    exact = {
        tier: (
            sum(tier in each.size_bytes for each in ledger),
            sum(each.size_bytes.get(tier, 0) for each in ledger),
        )
        for tier in retention.RULED
    }
    return Outlook(uses=_uses(job, exact), going=decisions(job, now, ledger)[:most], planned=False)


def decisions(job: Job, now: datetime, ledger: Sequence[Held] | None = None) -> list[Removal]:
    """Return all that may go from each tier of a job now. `ledger` is `held(job)` where that was read already."""
    ledger, line = held(job) if ledger is None else ledger, core.ceilings(job)
    rules = rules_of(job)
    onward = rules[Tier.STORAGE] if job.storage_dir else None
    found: list[Removal] = []
    for tier, rule in rules.items():
        awaited = onward if tier is Tier.SSD else None
        found += retention.decide(ledger, tier=tier, rule=rule, line=line, now=now.timestamp(), onward=awaited)
    return found


def _counted(job: Job) -> dict[Tier, tuple[int, int]]:
    """Return the snapshots and bytes on each ruled tier; of an SSD an even share of the nodes' bytes. One query."""
    rows = SnapshotTier.objects.filter(_TAKES_ROOM, job=job, tier__in=retention.RULED).order_by()
    found = {
        Tier(tier): (snapshots, size or 0)
        for tier, snapshots, size in rows.values_list("tier").annotate(snapshots=Count("pk"), size=Sum("size_bytes"))
    }
    snapshots, size = found.get(Tier.SSD, (0, 0))
    return {**dict.fromkeys(retention.RULED, (0, 0)), **found, Tier.SSD: (snapshots, _share(job, size))}


def _share(job: Job, size_bytes: int) -> int:
    return -(-size_bytes // max(job.nodes, 1))


def _planned(job: Job, most: int) -> list[Removal]:
    """Return the first snapshots that the last round planned to remove, in the order of the decision."""
    columns = ("snapshot__epoch", "snapshot__step", "tier", "why", "words")
    rows = PlannedRemoval.objects.filter(job=job).values_list(*columns)
    rows = rows.annotate(size=Sum("copy__size_bytes"), first=Min("pk")).order_by("first")[:most]
    return [
        Removal(SnapshotId(epoch, step), Tier(tier), Why(why), words, _share(job, size) if tier == Tier.SSD else size)
        for epoch, step, tier, why, words, size, _ in rows
    ]


def _uses(job: Job, counted: Mapping[Tier, tuple[int, int]]) -> list[TierUse]:
    own = set(RetentionRule.objects.filter(job=job).values_list("tier", flat=True))
    rows = PlannedRemoval.objects.filter(job=job).order_by()
    going = dict(rows.values_list("tier").annotate(snapshots=Count("snapshot", distinct=True)))
    return [
        TierUse(
            tier=tier,
            rule=rule,
            words=retention.said(rule),
            default=tier not in own,
            snapshots=counted[tier][0],
            size_bytes=counted[tier][1],
            going=going.get(tier.value, 0),
        )
        for tier, rule in rules_of(job).items()
    ]
