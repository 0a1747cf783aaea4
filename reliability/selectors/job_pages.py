"""What the page of a job shows."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from reliability.models import Drill, Epoch, Failover, Incident, Job, Plan, Report, Room
from reliability.selectors.ledger_rows import LedgerRow, newest_rows
from reliability.selectors.progress import JobLine, job_lines
from reliability.selectors.restarts import Restarts, restarts
from reliability.selectors.rooms import warnings
from reliability.selectors.watch_pages import Watching, watching_of

LEDGER_ROWS = 20
ROWS = 10


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
    warnings: tuple[Room, ...]
    restarts: Restarts
    watching: Watching

    @property
    def unstarted(self) -> int | None:
        """The job's epoch while no attempt was begun in it."""
        epoch = self.line.job.epoch
        return None if not epoch or any(row.number == epoch for row in self.epochs) else epoch

    @property
    def undecided(self) -> bool:
        """Whether it waits for a person and nothing was proposed that could be approved."""
        return self.line.job.state == Job.State.WAITING and self.open_failover is None


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
    line = job_lines([job], now=now)[0]
    nodes = [slot.node_id for slot in line.slots if slot.node_id]
    return JobPage(
        line=line,
        epochs=tuple(job.epochs.order_by("-number")[:ROWS]),
        ledger=tuple(newest_rows([job], limit=LEDGER_ROWS)),
        plan=job.plans.first(),
        incidents=tuple(job.incidents.select_related("node")[:ROWS]),
        failovers=failovers,
        drills=tuple(job.drills.select_related("node", "failover")[:ROWS]),
        open_failover=next((row for row in failovers if row.ended_at is None), None),
        output=_last_outputs(job),
        restarts=restarts(job, now=now),
        watching=watching_of(job, now=now),
        warnings=tuple(warnings(nodes=nodes, places=[job.storage_dir])),
    )
