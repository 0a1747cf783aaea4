"""How far is each job, how old are its snapshots on each tier, and what would a fault cost right now?

A shard in memory or on SSD counts only on the node that runs its rank now; one on storage always. All figures come
from rows; what no row tells is None and shown as unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reliability.domain.snapshots import CopyState, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.models import Epoch, Job, Rank, Slot, SnapshotCopy

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
    """What a fault would cost now: steps to compute again, their time, and where the job would go on."""

    steps: int | None = None
    seconds: float | None = None
    restore_step: int | None = None
    node: str = ""


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
    def over(self) -> bool:
        """Whether nothing of it can be lost any more."""
        return self.job.state in Job.TERMINAL

    @property
    def training(self) -> bool:
        """Whether it works now: steps are being made, or a plain program lives."""
        return self.job.state == Job.State.RUNNING and (self.plain or not self.quiet)


@dataclass
class Coverage:
    """Which ranks of a snapshot can be read: from any tier, from each tier, from storage alone."""

    taken_at: datetime
    any_tier: set[int] = field(default_factory=set)
    by_tier: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


Coverages = dict[SnapshotId, Coverage]


def _coverages(jobs: Iterable[int], slots: Iterable[Slot], per_node: Mapping[int, int]) -> dict[int, Coverages]:
    rows = SnapshotCopy.objects.filter(
        snapshot__job__in=jobs, snapshot__distrusted=False, state=CopyState.COMMITTED
    ).values_list(
        "snapshot__job_id", "snapshot__epoch", "snapshot__step", "snapshot__created_at", "rank", "tier", "node_id"
    )
    runs_on = {(slot.job_id, slot.index): slot.node_id for slot in slots}
    found: dict[int, Coverages] = defaultdict(dict)
    for job, epoch, step, taken_at, rank, tier, node in rows:
        if tier != Tier.STORAGE and runs_on.get((job, rank // per_node[job])) != node:
            continue
        coverage = found[job].setdefault(SnapshotId(epoch, step), Coverage(taken_at))
        coverage.any_tier.add(rank)
        coverage.by_tier[tier].add(rank)
    return found


def _lineages(jobs: Iterable[int]) -> dict[int, dict[int, int | None]]:
    starts: dict[int, list[EpochStart]] = defaultdict(list)
    rows = Epoch.objects.filter(job__in=jobs).values_list("job_id", "number", "restored_epoch", "restored_step")
    for job, number, epoch, step in rows:
        restored = SnapshotId(epoch, step) if epoch is not None and step is not None else None
        starts[job].append(EpochStart(epoch=number, restored=restored))
    return {job: lineage_ceilings(items) for job, items in starts.items()}


def _newest(coverages: Coverages, needed: Mapping[int, str]) -> SnapshotId | None:
    """Return the newest snapshot in which every rank is readable from what `needed` names ('' is any tier)."""
    fit = (
        snapshot
        for snapshot, coverage in coverages.items()
        if all(rank in (coverage.by_tier[tier] if tier else coverage.any_tier) for rank, tier in needed.items())
    )
    return max(fit, key=lambda snapshot: (snapshot.step, snapshot.epoch), default=None)


def _tier_ages(coverages: Coverages, ranks: int, period_s: float | None, now: datetime) -> tuple[TierAge, ...]:
    ages = []
    for tier in TIERS:
        newest = _newest(coverages, dict.fromkeys(range(ranks), tier.value))
        if newest is None:
            ages.append(TierAge(tier))
            continue
        taken_at = coverages[newest].taken_at
        share = (now - taken_at).total_seconds() / (2 * period_s) if period_s else None
        ages.append(TierAge(tier, newest.step, taken_at, share))
    return tuple(ages)


def _risk(
    coverages: Coverages, needed: Mapping[int, str], step: int | None, step_s: float | None, node: str = ""
) -> Risk:
    if step is None:
        return Risk(node=node)
    newest = _newest(coverages, needed)
    restore_step = newest.step if newest else 0
    lost = max(0, step - restore_step)
    return Risk(lost, lost * step_s if step_s else None, restore_step, node)


def _worst_node_risk(
    job: Job, slots: Iterable[Slot], coverages: Coverages, step: int | None, step_s: float | None
) -> Risk:
    worst = Risk()
    for slot in slots:
        if slot.node is None:
            continue
        own = range(slot.index * job.ranks_per_node, (slot.index + 1) * job.ranks_per_node)
        needed = {rank: Tier.STORAGE.value if rank in own else "" for rank in range(job.world_size)}
        risk = _risk(coverages, needed, step, step_s, slot.node.name)
        if risk.steps is not None and (worst.steps is None or risk.steps > worst.steps):
            worst = risk
    return worst


def _is_quiet(progress_at: datetime | None, step_s: float | None, now: datetime) -> bool:
    limit = timedelta(seconds=max(QUIET_LEAST_S, QUIET_STEPS * (step_s or 0)))
    return progress_at is None or now - progress_at > limit


def _line(job: Job, slots: list[Slot], ranks: list[Rank], coverages: Coverages, now: datetime) -> JobLine:
    steps = [rank.step for rank in ranks if rank.step is not None]
    whole = len(steps) == job.world_size
    step, newest_step = (min(steps) if whole else None), max(steps, default=None)
    step_s = max((rank.step_s for rank in ranks if rank.step_s), default=None)
    progress_at = min((rank.progress_at for rank in ranks if rank.progress_at), default=None)
    tiers = _tier_ages(coverages, job.world_size, job.every_steps * step_s if step_s else None, now)
    taken = tiers[0].step
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
        process_risk=_risk(coverages, dict.fromkeys(range(job.world_size), ""), newest_step, step_s),
        node_risk=_worst_node_risk(job, slots, coverages, newest_step, step_s),
        next_due_steps=due,
        next_due_s=due * step_s if due is not None and step_s else None,
    )


def job_lines(jobs: Iterable[Job], *, now: datetime) -> list[JobLine]:
    """Return the lines of the jobs in their order. Four queries, however many jobs."""
    listed = list(jobs)
    keys = [job.pk for job in listed]
    slots: dict[int, list[Slot]] = defaultdict(list)
    for slot in Slot.objects.filter(job__in=keys).select_related("node"):
        slots[slot.job_id].append(slot)
    ranks: dict[int, list[Rank]] = defaultdict(list)
    for rank in Rank.objects.filter(job__in=keys).order_by("job", "rank"):
        ranks[rank.job_id].append(rank)
    all_slots = [slot for group in slots.values() for slot in group]
    coverages = _coverages(keys, all_slots, {job.pk: job.ranks_per_node for job in listed})
    lineages = _lineages(keys)
    lines = []
    for job in listed:
        ceilings = lineages.get(job.pk, {})
        own = {key: value for key, value in coverages[job.pk].items() if in_lineage(key, ceilings)}
        lines.append(_line(job, slots[job.pk], ranks[job.pk], own, now))
    return lines
