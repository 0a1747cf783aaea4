"""Snapshots as lists show them: one line each, with how it stands on every tier, and lists narrowed by that.

A list reads what was counted (SnapshotTier), never the copies: two queries for a page, however many ranks there are.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet, Sum

from reliability.domain import ledger
from reliability.domain.ledger import Standing
from reliability.domain.snapshots import SnapshotId, Tier, in_lineage
from reliability.errors import InvalidInput
from reliability.models import Epoch, Job, Snapshot, SnapshotTier
from reliability.selectors import core

MOST_JOBS = 300

SELDOM = tuple(tier for tier in Tier if tier not in (Tier.MEMORY, Tier.SSD, Tier.STORAGE))
"""Tiers that lists show only where a job uses them."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A snapshot on one tier. `ranks` of `world_size` can be read there; durations are those of the slowest rank."""

    tier: Tier
    standing: Standing
    world_size: int
    ranks: int = 0
    verified: int = 0
    trial_restored: int = 0
    corrupt: int = 0
    lost: int = 0
    removed: int = 0
    size_bytes: int = 0
    stall_s: float | None = None
    drain_s: float | None = None
    complete_at: datetime | None = None
    superseded: int = 0

    @property
    def complete(self) -> bool:
        """Whether every rank can be read here."""
        return self.ranks >= self.world_size

    @property
    def throughput(self) -> float | None:
        """Bytes per second of all ranks together, from the end of the stall until the last was durable."""
        return ledger.throughput(self.size_bytes, self.drain_s) if self.complete else None

    @property
    def meaning(self) -> str:
        """The standing in a sentence."""
        return ledger.MEANING[self.standing]


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """One snapshot over all tiers. `current` is False when the history that goes on does not contain it."""

    snapshot: Snapshot
    world_size: int
    current: bool
    cells: tuple[Cell, ...]

    @property
    def whole(self) -> bool:
        """Whether every rank has a copy somewhere."""
        return self.snapshot.held >= self.world_size


def ledger_rows(snapshots: Iterable[Snapshot]) -> list[LedgerRow]:
    """Return the lines of these snapshots, whose jobs are fetched, in their order. Two queries."""
    listed = list(snapshots)
    counted: dict[int, dict[str, SnapshotTier]] = defaultdict(dict)
    for row in SnapshotTier.objects.filter(snapshot__in=[each.pk for each in listed]):
        counted[row.snapshot_id][row.tier] = row
    ceilings = core.ceilings_of({each.job_id for each in listed})
    used = {tier for rows in counted.values() for tier, row in rows.items() if row.ever}
    tiers = [tier for tier in Tier if tier not in SELDOM or tier.value in used]
    return [_row(each, counted[each.pk], ceilings.get(each.job_id, {}), tiers) for each in listed]


def _row(
    snapshot: Snapshot, counted: Mapping[str, SnapshotTier], ceilings: Mapping[int, int | None], tiers: Iterable[Tier]
) -> LedgerRow:
    current = in_lineage(SnapshotId(snapshot.epoch, snapshot.step), ceilings)
    ranks = snapshot.job.world_size
    return LedgerRow(
        snapshot=snapshot,
        world_size=ranks,
        current=current,
        cells=tuple(_cell(tier, counted.get(tier.value), ranks, in_line=current) for tier in tiers),
    )


def not_removed(rows: QuerySet[Snapshot]) -> QuerySet[Snapshot]:
    """Return those of which something is left, or is missing though nobody removed it."""
    tiers = SnapshotTier.objects.filter(snapshot=OuterRef("pk"))
    tidied = Exists(tiers.filter(removed__gt=0)) & ~Exists(tiers.filter(Q(corrupt__gt=0) | Q(lost__gt=0)))
    return rows.exclude(Q(held=0) & Q(tidied))


def is_current(snapshot: Snapshot) -> bool:
    """Return whether the history that goes on contains this snapshot."""
    ceilings = core.ceilings_of([snapshot.job_id]).get(snapshot.job_id, {})
    return in_lineage(SnapshotId(snapshot.epoch, snapshot.step), ceilings)


def _cell(tier: Tier, row: SnapshotTier | None, ranks: int, *, in_line: bool) -> Cell:
    if row is None:
        return Cell(tier=tier, standing=Standing.ABSENT, world_size=ranks)
    return Cell(
        tier=tier,
        standing=ledger.seen(Standing(row.state), in_line=in_line),
        world_size=ranks,
        ranks=row.ranks,
        verified=row.verified,
        trial_restored=row.trial_restored,
        corrupt=row.corrupt,
        lost=row.lost,
        removed=row.removed,
        size_bytes=row.size_bytes,
        stall_s=row.stall_s,
        drain_s=row.drain_s,
        complete_at=row.complete_at,
        superseded=row.superseded,
    )


def newest_rows(jobs: Iterable[Job], *, limit: int) -> list[LedgerRow]:
    """Return the newest snapshots of the jobs, by order of their first commit."""
    keys = [job.pk for job in jobs]
    return ledger_rows(Snapshot.objects.filter(job__in=keys).select_related("job").order_by("-pk")[:limit])


def superseded_saves(job: Job) -> dict[Tier, int]:
    """Return for each tier how many saves of a job were passed over there, as its movers counted them. One query."""
    rows = SnapshotTier.objects.filter(job=job, superseded__gt=0).order_by()
    counts = dict(rows.values_list("tier").annotate(all=Sum("superseded")))
    return {tier: counts.get(tier.value, 0) for tier in Tier}


def standing_so(
    rows: QuerySet[Snapshot], *, states: Collection[str], tiers: Collection[str], jobs: Sequence[int] | None = None
) -> QuerySet[Snapshot]:
    """Return the snapshots that stand so on one of the tiers (any tier without `tiers`); `jobs`: those they are of.

    Without `states`: those that can be read there by at least one rank. Raises InvalidInput where the lines of too
    many jobs would have to be told apart.
    """
    on_tier = SnapshotTier.objects.filter(snapshot=OuterRef("pk"))
    on_tier = on_tier.filter(tier__in=list(tiers)) if tiers else on_tier
    if not states:
        return rows.filter(Exists(on_tier.filter(ranks__gt=0)))
    beside = _beside_their_line(jobs)
    plain = [state for state in states if state != Standing.ABANDONED]
    gone = [state for state in plain if state in ledger.GONE]
    there = [state for state in plain if state not in ledger.GONE]
    unused = Q(state=Standing.ABSENT, tier__in=SELDOM) if not tiers else Q(pk__in=[])
    fits = Q(Exists(on_tier.filter(state__in=gone).exclude(unused))) if gone else Q(pk__in=[])
    if there:
        fits |= Q(Exists(on_tier.filter(state__in=there))) & ~beside
    if Standing.ABANDONED in states:
        fits |= Q(Exists(on_tier.exclude(state__in=ledger.GONE))) & beside
    return rows.filter(fits)


def _beside_their_line(jobs: Sequence[int] | None) -> Q:
    """Return the condition for snapshots that the history of their job does not contain."""
    went_back = Epoch.objects.filter(number__gt=1) if jobs is None else Epoch.objects.filter(job__in=jobs)
    keys = sorted(set(went_back.order_by().values_list("job_id", flat=True)[: 50 * MOST_JOBS]))
    if len(keys) > MOST_JOBS:
        raise InvalidInput(
            "job", "is missing", hint=f"Name a job: more than {MOST_JOBS} have a history to look through."
        )
    beside = Q(pk__in=[])
    for job, ceilings in core.ceilings_of(keys).items():
        beside |= Q(job=job) & ~core.is_in(ceilings)
    return beside
