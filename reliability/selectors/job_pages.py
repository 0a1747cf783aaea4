"""What the page of a job and the snapshot ledger show."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from reliability.domain.snapshots import CopyState, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.models import Drill, Epoch, Failover, Incident, Job, Plan, Report, Snapshot, SnapshotCopy
from reliability.selectors.progress import TIERS, JobLine, job_lines

LEDGER_ROWS = 40
ROWS = 10


@dataclass
class LedgerCell:
    """A snapshot on a tier: how many ranks are committed, since when, how large."""

    tier: Tier
    ranks: set[int] = field(default_factory=set)
    gone: int = 0
    corrupt: int = 0
    size_bytes: int = 0
    complete_at: datetime | None = None
    stall_s: float | None = None
    drain_s: float | None = None

    def add(self, copy: SnapshotCopy) -> None:
        """Count one copy in."""
        if copy.state != CopyState.COMMITTED:
            self.gone += 1
            self.corrupt += copy.state == CopyState.CORRUPT
            return
        if copy.rank not in self.ranks:  # a shard that a restore brought to a second node is the same shard
            self.size_bytes += copy.size_bytes
        self.ranks.add(copy.rank)
        self.complete_at = max(self.complete_at or copy.committed_at, copy.committed_at)
        if copy.stall_s is not None:
            self.stall_s = max(self.stall_s or 0.0, copy.stall_s)
        if copy.drain_s is not None:
            self.drain_s = max(self.drain_s or 0.0, copy.drain_s)


@dataclass(frozen=True)
class LedgerRow:
    """One snapshot over all tiers. `current` is False when the history that goes on does not contain it."""

    snapshot: Snapshot
    world_size: int
    current: bool
    cells: tuple[LedgerCell, ...]


@dataclass(frozen=True)
class RankOutput:
    """The last lines that a rank wrote before it ended, as its node kept them with the end."""

    key: int
    rank: int
    epoch: int | None
    exit_code: int | None
    at: datetime
    node: str
    tail: str


@dataclass(frozen=True)
class JobPage:
    """Everything of a job's page."""

    line: JobLine
    epochs: tuple[Epoch, ...]
    ledger: tuple[LedgerRow, ...]
    plan: Plan | None
    incidents: tuple[Incident, ...]
    failovers: tuple[Failover, ...]
    drills: tuple[Drill, ...]
    open_failover: Failover | None
    output: tuple[RankOutput, ...]

    @property
    def unstarted(self) -> int | None:
        """The job's epoch while no attempt was begun in it."""
        epoch = self.line.job.epoch
        return None if not epoch or any(row.number == epoch for row in self.epochs) else epoch

    @property
    def undecided(self) -> bool:
        """Whether it waits for a person and nothing was proposed that could be approved."""
        return self.line.job.state == Job.State.WAITING and self.open_failover is None


def _rows(snapshots: Iterable[Snapshot], ceilings: dict[int, dict[int, int | None]]) -> list[LedgerRow]:
    listed = list(snapshots)
    cells: dict[int, dict[str, LedgerCell]] = defaultdict(lambda: {tier.value: LedgerCell(tier) for tier in TIERS})
    for copy in SnapshotCopy.objects.filter(snapshot__in=[row.pk for row in listed]):
        cells[copy.snapshot_id][copy.tier].add(copy)
    return [
        LedgerRow(
            snapshot=row,
            world_size=row.job.world_size,
            current=in_lineage(SnapshotId(row.epoch, row.step), ceilings.get(row.job_id, {})),
            cells=tuple(cells[row.pk].values()),
        )
        for row in listed
    ]


def ledger(jobs: Iterable[Job], *, limit: int = LEDGER_ROWS) -> list[LedgerRow]:
    """Return the newest snapshots of the jobs, by order of commit, with every tier. Three queries."""
    keys = [job.pk for job in jobs]
    starts: dict[int, list[EpochStart]] = defaultdict(list)
    for epoch in Epoch.objects.filter(job__in=keys):
        restored = None
        if epoch.restored_epoch is not None and epoch.restored_step is not None:
            restored = SnapshotId(epoch.restored_epoch, epoch.restored_step)
        starts[epoch.job_id].append(EpochStart(epoch=epoch.number, restored=restored))
    ceilings = {job: lineage_ceilings(items) for job, items in starts.items()}
    newest = Snapshot.objects.filter(job__in=keys).select_related("job").order_by("-pk")[:limit]
    return _rows(newest, ceilings)


def outputs(reports: Iterable[Report]) -> tuple[RankOutput, ...]:
    """Return what ended ranks wrote last, from the reports of their ends."""
    return tuple(
        RankOutput(
            key=report.pk,
            rank=report.body.get("rank", 0),
            epoch=report.epoch,
            exit_code=report.body.get("exit_code"),
            at=report.received_at,
            node=report.node.name,
            tail=str(report.body["tail"]).strip("\n"),
        )
        for report in reports
        if report.body.get("tail")
    )


def _last_outputs(job: Job) -> tuple[RankOutput, ...]:
    ends = Report.objects.filter(job_name=job.name, kind="rank_exit", state=Report.State.PROCESSED)
    return outputs(ends.select_related("node").order_by("-pk")[:ROWS])


def job_page(job: Job, *, now: datetime) -> JobPage:
    """Return what the page of a job shows."""
    failovers = tuple(job.failovers.select_related("failed_node", "standby")[:ROWS])
    return JobPage(
        line=job_lines([job], now=now)[0],
        epochs=tuple(job.epochs.order_by("-number")[:ROWS]),
        ledger=tuple(ledger([job], limit=20)),
        plan=job.plans.first(),
        incidents=tuple(job.incidents.select_related("node")[:ROWS]),
        failovers=failovers,
        drills=tuple(job.drills.select_related("node", "failover")[:ROWS]),
        open_failover=next((row for row in failovers if row.ended_at is None), None),
        output=_last_outputs(job),
    )
