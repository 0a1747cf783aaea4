"""What the pages of the snapshot ledger show: a job's steps with what is at risk, and one step with every rank."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from reliability.domain import ledger, risk
from reliability.domain.faults import FaultClass
from reliability.domain.health import NodeHealth
from reliability.domain.ledger import Standing
from reliability.domain.partners import Pairing
from reliability.domain.snapshots import SnapshotId, Tier
from reliability.models import Failover, Finding, Job, Room, Snapshot, SnapshotCopy, SnapshotEvent
from reliability.selectors import core
from reliability.selectors.ledger_rows import SELDOM, LedgerRow, is_current, ledger_rows, superseded_saves
from reliability.selectors.partners import pairing_of
from reliability.selectors.progress import JobLine, Risk, job_lines, risk_without
from reliability.selectors.rooms import warnings

RANKS_A_PAGE = 128
EVENTS = 100
TROUBLES = 5


@dataclass(frozen=True, kw_only=True)
class HeldBack:
    """The newest snapshot that is not restorable yet, the ranks that it lacks, and the nodes that run them."""

    snapshot: SnapshotId
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def told(self) -> str:
        """The ranks in words."""
        return ledger.spans(self.ranks)


@dataclass(frozen=True, kw_only=True)
class JobLedger:
    """Everything of a job's ledger page."""

    line: JobLine
    rows: tuple[LedgerRow, ...]
    held_back: HeldBack | None
    superseded: dict[Tier, int]
    warnings: tuple[Room, ...]
    troubles: tuple[Finding, ...]
    failover: Failover | None
    """The recovery that is open."""
    partners: Pairing | None
    """Who keeps whose newest shards in memory; None where the job has no partner copies, or is over."""

    @property
    def lost(self) -> tuple[str, ...]:
        """The nodes with a slot that are not heard."""
        nodes = [slot.node for slot in self.line.slots if slot.node and not self.line.over]
        return tuple(dict.fromkeys(node.name for node in nodes if node.health == NodeHealth.UNREACHABLE))

    @property
    def lost_ranks(self) -> tuple[int, ...]:
        """The ranks of the nodes that are not heard."""
        per_node, lost = self.line.job.ranks_per_node, set(self.lost)
        slots = [slot.index for slot in self.line.slots if slot.node and slot.node.name in lost]
        return tuple(rank for index in sorted(slots) for rank in range(index * per_node, (index + 1) * per_node))

    @property
    def now(self) -> Risk:
        """What a restore now would take: of the nodes that are lost nothing is read."""
        return risk_without(self.line, self.lost) if self.lost else self.line.process_risk


@dataclass(frozen=True, kw_only=True)
class CopyLine:
    """One rank's shard on one tier, or that there is none (`copy` None)."""

    tier: Tier
    standing: Standing
    copy: SnapshotCopy | None = None

    @property
    def throughput(self) -> float | None:
        """Bytes per second from the end of the stall until it was durable here."""
        return ledger.throughput(self.copy.size_bytes, self.copy.drain_s) if self.copy else None


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """One rank of a snapshot: every copy of its shard, fastest tier first."""

    rank: int
    node: str
    copies: tuple[CopyLine, ...]


@dataclass(frozen=True, kw_only=True)
class SnapshotPage:
    """Everything of the page of one step."""

    row: LedgerRow
    ranks: tuple[RankLine, ...]
    events: tuple[SnapshotEvent, ...]
    newer: Snapshot | None
    older: Snapshot | None

    @property
    def there(self) -> bool:
        """Whether anything of it is left on a tier."""
        return any(cell.ranks for cell in self.row.cells)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One step of the list with its ranks: tier -> [(standing, the ranks in words)]."""

    pk: int
    tiers: dict[Tier, list[tuple[Standing, str]]]


def job_ledger(job: Job, snapshots: Iterable[Snapshot], *, now: datetime) -> JobLedger:
    """Return what a job's ledger page shows: these snapshots, and from what it could go on now."""
    line = job_lines([job], now=now)[0]
    nodes = [slot.node_id for slot in line.slots if slot.node_id]
    return JobLedger(
        line=line,
        rows=tuple(ledger_rows(snapshots)),
        held_back=held_back(line),
        superseded=superseded_saves(job),
        warnings=tuple(warnings(nodes=nodes, places=[job.storage_dir])),
        troubles=tuple(_troubles(job)),
        failover=core.open_failover(job),
        partners=pairing_of(list(line.slots)) if job.partner_copies and not line.over else None,
    )


def _troubles(job: Job) -> QuerySet[Finding]:
    """Return what movers told last of saves and copies that failed, in incidents that are open."""
    told = Finding.objects.filter(job=job, fault_class=FaultClass.STORAGE, incident__closed_at=None)
    return told.exclude(incident=None).select_related("node", "incident").order_by("-pk")[:TROUBLES]


def held_back(line: JobLine) -> HeldBack | None:
    """Return the newest snapshot of the line that cannot be restored yet, and because of whom; None when it can."""
    readable, ranks = line.coverage.readable, line.job.world_size
    order = sorted(readable, key=lambda each: (each.step, each.epoch), reverse=True)
    found = risk.held_back(readable, ranks, risk.newest(readable, ranks), order)
    if found is None:
        return None
    snapshot, lacking = found
    slots = {slot.index: slot.node.name for slot in line.slots if slot.node}
    nodes = {slots.get(rank // line.job.ranks_per_node, "") for rank in lacking} - {""}
    return HeldBack(snapshot=snapshot, ranks=tuple(lacking), nodes=tuple(sorted(nodes)))


def opened(asked: str, rows: Iterable[LedgerRow]) -> Opened | None:
    """Return the ranks of the step that was asked for by its key, when it is among those listed."""
    found = next((each for each in rows if str(each.snapshot.pk) == asked), None)
    if found is None:
        return None
    row, tiers = found.snapshot, [cell.tier for cell in found.cells]
    lines = _rank_lines(row, range(row.job.world_size), in_line=is_current(row))
    by_tier: dict[Tier, dict[Standing, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for tier in tiers:
            best = min((each.standing for each in line.copies if each.tier is tier), key=_BEST.index, default=_BEST[-1])
            by_tier[tier][best].append(line.rank)
    return Opened(
        pk=row.pk,
        tiers={tier: [(how, ledger.spans(ranks)) for how, ranks in by_tier[tier].items()] for tier in tiers},
    )


_BEST = (
    Standing.TRIAL_RESTORED,
    Standing.VERIFIED,
    Standing.COMMITTED,
    Standing.ABANDONED,
    Standing.CORRUPT,
    Standing.LOST,
    Standing.REMOVED,
    Standing.SUPERSEDED,
    Standing.WRITING,
    Standing.ABSENT,
)
"""Of several copies of a rank on one tier the best counts."""


def snapshot_page(snapshot: Snapshot, ranks: Sequence[int]) -> SnapshotPage:
    """Return what the page of a step shows, with these ranks."""
    same_job = Snapshot.objects.filter(job=snapshot.job_id)
    events = snapshot.events.select_related("node").order_by("-pk")[:EVENTS]
    return SnapshotPage(
        row=ledger_rows([snapshot])[0],
        ranks=tuple(_rank_lines(snapshot, ranks, in_line=is_current(snapshot))),
        events=tuple(events),
        newer=same_job.filter(step__gt=snapshot.step).order_by("step", "epoch").first(),
        older=same_job.filter(step__lt=snapshot.step).order_by("-step", "-epoch").first(),
    )


def _rank_lines(snapshot: Snapshot, ranks: Collection[int], *, in_line: bool) -> list[RankLine]:
    places = core.placement(snapshot.job)
    copies: dict[int, list[SnapshotCopy]] = defaultdict(list)
    rows = SnapshotCopy.objects.filter(snapshot=snapshot, rank__gte=min(ranks), rank__lte=max(ranks))
    for copy in rows.select_related("node").order_by("rank", "pk"):
        copies[copy.rank].append(copy)
    return [
        RankLine(rank=rank, node=places.get(rank, ""), copies=_copy_lines(copies[rank], in_line=in_line))
        for rank in ranks
    ]


def _copy_lines(copies: Iterable[SnapshotCopy], *, in_line: bool) -> tuple[CopyLine, ...]:
    lines = []
    for tier in Tier:
        there = [copy for copy in copies if copy.tier == tier]
        lines += [CopyLine(tier=tier, standing=_standing(copy, in_line=in_line), copy=copy) for copy in there]
        if not there and tier not in SELDOM:
            lines.append(CopyLine(tier=tier, standing=Standing.ABSENT))
    return tuple(lines)


def _standing(copy: SnapshotCopy, *, in_line: bool) -> Standing:
    return ledger.of_copy(
        copy.state,
        verified=copy.verified_at is not None,
        trial_restored=copy.trial_restored_at is not None,
        in_line=in_line,
    )
