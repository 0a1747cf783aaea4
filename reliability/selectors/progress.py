"""How far is each job, how old are its snapshots on each tier, and what would a fault cost right now?

The age of a tier is that of the newest snapshot that lies there whole where its ranks run, or on storage; what a fault
would cost follows the rule of restore points. All figures come from rows; what no row tells is None, shown as unknown.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from reliability.domain import risk as domain
from reliability.domain.health import NodeHealth
from reliability.domain.snapshots import SnapshotId, Tier
from reliability.models import Job, Rank, Slot
from reliability.selectors.coverage import Coverage, coverages

TIERS = (Tier.MEMORY, Tier.SSD, Tier.STORAGE)
QUIET_LEAST_S = 10.0
QUIET_STEPS = 5


@dataclass(frozen=True)
class TierAge:
    """The newest snapshot that is complete on a tier. `share` is its age in units of two periods."""

    tier: Tier
    step: int | None = None
    taken_at: datetime | None = None
    share: float | None = None


@dataclass(frozen=True)
class Risk:
    """What a fault would cost now: steps to compute again, their time, and where the job would go on.

    `since` is when that restore point was taken, or without one when the attempt began: all work since is at risk.
    """

    steps: int | None = None
    seconds: float | None = None
    restore_step: int | None = None
    node: str = ""
    since: datetime | None = None


@dataclass(frozen=True)
class JobLine:
    """One job as lists show it."""

    job: Job
    slots: tuple[Slot, ...]
    ranks: tuple[Rank, ...]
    step: int | None
    newest_step: int | None
    step_s: float | None
    progress_at: datetime | None
    quiet: bool
    tiers: tuple[TierAge, ...]
    process_risk: Risk
    node_risk: Risk
    node_risks: tuple[Risk, ...]
    coverage: Coverage
    next_due_steps: int | None
    next_due_s: float | None

    @property
    def steps_per_s(self) -> float | None:
        """Speed of the slowest rank."""
        return 1 / self.step_s if self.step_s else None

    @property
    def period_s(self) -> float | None:
        """Time between two snapshots at the present speed."""
        return self.job.every_steps * self.step_s if self.step_s else None

    @property
    def plain(self) -> bool:
        """Whether it is a program as it is, which tells of no steps and takes no snapshots of ours."""
        return self.job.mode == Job.Mode.PLAIN

    @property
    def keeps_nothing(self) -> bool:
        """Whether no snapshot of it is kept: a plain program that saves into no folder that is watched."""
        return self.plain and self.job.snapshot_folder is None and not self.process_risk.restore_step

    @property
    def costliest(self) -> str:
        """The node whose loss costs most, '' where another's would cost the same."""
        costs = [each.restore_step or 0 for each in self.node_risks]
        alone = len(costs) > 1 and costs.count(min(costs)) == 1
        return self.node_risk.node if alone else ""

    @property
    def over(self) -> bool:
        """Whether nothing of it can be lost any more."""
        return self.job.state in Job.TERMINAL

    @property
    def training(self) -> bool:
        """Whether it works now: steps are being made, or a plain program lives."""
        if self.plain or self.job.state == Job.State.RUNNING:
            return self.job.state == Job.State.RUNNING and (self.plain or not self.quiet)
        return self.job.state == Job.State.WAITING and self._all_run and not self.quiet

    @property
    def _all_run(self) -> bool:
        """Whether no rank of the present attempt has ended and each is heard: it may train though a person is asked."""
        runs = (rank.state == Rank.State.RUNNING and rank.epoch == self.job.epoch for rank in self.ranks)
        heard = (slot.node is not None and slot.node.health != NodeHealth.UNREACHABLE for slot in self.slots)
        return bool(self.ranks) and all(runs) and all(heard)


def _tier_ages(found: Coverage, job: Job, period_s: float | None, now: datetime) -> tuple[TierAge, ...]:
    ages = []
    for tier in TIERS:
        newest = domain.newest(found.readable, job.world_size, tier=tier.value)
        if newest is None:
            if job.snapshot_folder is None or tier is not Tier.MEMORY:  # what a program writes never lies in memory
                ages.append(TierAge(tier))
            continue
        taken_at = found.taken_at[newest]
        share = (now - taken_at).total_seconds() / (2 * period_s) if period_s else None
        ages.append(TierAge(tier, newest.step, taken_at, share))
    return tuple(ages)


def _risk(found: Coverage, newest: SnapshotId | None, step: int | None, step_s: float | None, node: str = "") -> Risk:
    since = found.taken_at[newest] if newest else found.began_at
    restore_step = newest.step if newest else 0
    if step is None:  # a program tells of no steps, yet it goes on somewhere
        return Risk(restore_step=restore_step if newest or since else None, node=node, since=since)
    lost = max(0, step - restore_step)
    return Risk(lost, lost * step_s if step_s else None, restore_step, node, since)


def _node_risks(
    job: Job, slots: Iterable[Slot], found: Coverage, step: int | None, step_s: float | None
) -> tuple[Risk, ...]:
    """Return what the loss of each node of the job would cost, in the order of its slots."""
    names = [slot.node.name for slot in slots if slot.node]
    after = domain.nodes_at_risk(found.readable, job.world_size, names)
    return tuple(_risk(found, after[name], step, step_s, name) for name in names)


def risk_without(line: JobLine, nodes: Collection[str]) -> Risk:
    """Return what it costs that all of these nodes are gone."""
    newest = domain.newest(line.coverage.readable, line.job.world_size, without=nodes)
    return _risk(line.coverage, newest, line.step, line.step_s)


def _worst(risks: Iterable[Risk]) -> Risk:
    """Return that of most steps; where none tells of steps, the one that goes back furthest."""
    listed = list(risks)
    known = [risk for risk in listed if risk.steps is not None]
    dated = [risk for risk in listed if risk.since is not None]
    if known or not dated:
        return max(known, key=lambda risk: risk.steps or 0, default=Risk())
    return min(dated, key=lambda risk: risk.since.timestamp() if risk.since else 0.0)


def _is_quiet(progress_at: datetime | None, step_s: float | None, now: datetime) -> bool:
    limit = timedelta(seconds=max(QUIET_LEAST_S, QUIET_STEPS * (step_s or 0)))
    return progress_at is None or now - progress_at > limit


def _line(job: Job, slots: list[Slot], ranks: list[Rank], found: Coverage, now: datetime) -> JobLine:
    steps = [rank.step for rank in ranks if rank.step is not None]
    whole = len(steps) == job.world_size
    step, newest_step = (min(steps) if whole else None), max(steps, default=None)
    step_s = max((rank.step_s for rank in ranks if rank.step_s), default=None)
    progress_at = min((rank.progress_at for rank in ranks if rank.progress_at), default=None)
    tiers = _tier_ages(found, job, job.every_steps * step_s if step_s else None, now)
    taken = tiers[0].step
    process_risk = _risk(found, domain.newest(found.readable, job.world_size), newest_step, step_s)
    node_risks = _node_risks(job, slots, found, newest_step, step_s)
    due = max(0, (taken or 0) + job.every_steps - step) if step is not None else None
    return JobLine(
        job=job,
        slots=tuple(slots),
        ranks=tuple(ranks),
        step=step,
        newest_step=newest_step,
        step_s=step_s,
        progress_at=progress_at,
        quiet=_is_quiet(progress_at, step_s, now),
        tiers=tiers,
        process_risk=process_risk,
        node_risk=_worst(node_risks),
        node_risks=node_risks,
        coverage=found,
        next_due_steps=due,
        next_due_s=due * step_s if due is not None and step_s else None,
    )


def job_lines(jobs: Iterable[Job], *, now: datetime) -> list[JobLine]:
    """Return the lines of the jobs in their order. Six queries, however many jobs."""
    listed = list(jobs)
    keys = [job.pk for job in listed]
    slots: dict[int, list[Slot]] = defaultdict(list)
    for slot in Slot.objects.filter(job__in=keys).select_related("node"):
        slots[slot.job_id].append(slot)
    ranks: dict[int, list[Rank]] = defaultdict(list)
    for rank in Rank.objects.filter(job__in=keys).order_by("job", "rank"):
        ranks[rank.job_id].append(rank)
    found = coverages(listed, slots)
    return [_line(job, slots[job.pk], ranks[job.pk], found[job.pk], now) for job in listed]
