"""What does a job still have for being started again, how did its attempts end, which batches does it leave out?"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reliability.domain import budget
from reliability.domain.budget import Attempt
from reliability.domain.failover import OPEN
from reliability.models import AttemptEnd, BatchSkip, Epoch, Failover, Job, Rank
from reliability.selectors import attempts, core, fault_context

ROWS = 20


@dataclass(frozen=True)
class CauseLine:
    """How much of the budget of one cause is spent."""

    cause: str
    spent: int
    left: int


@dataclass(frozen=True)
class Told:
    """Which batches the present attempt was told to leave out, and which of its ranks know."""

    epoch: int
    steps: tuple[int, ...]
    read_by: tuple[int, ...]
    unread_by: tuple[int, ...]

    @property
    def unread(self) -> bool:
        """Whether every rank is past its first step and some never asked."""
        return bool(self.steps and self.unread_by)


@dataclass(frozen=True)
class Restarts:
    """Everything of a job's restarts. `waits_until`: the next attempt is not started before."""

    budget: int
    first_s: float
    longest_s: float
    causes: tuple[CauseLine, ...]
    waits_until: datetime | None
    ends: tuple[AttemptEnd, ...]
    skips: tuple[BatchSkip, ...]
    told: Told
    actions: Mapping[str, str]

    @property
    def offered(self) -> tuple[BatchSkip, ...]:
        """Batches that wait for a decision."""
        return tuple(each for each in self.skips if each.state == BatchSkip.State.OFFERED)


def restarts(job: Job, *, now: datetime) -> Restarts:
    """Return what a job's page and REST show of its restarts."""
    allowed = attempts.allowance(job)
    going = job.epoch if core.goes_on(job) else 0  # judged as ended when a person was asked, and it trains on
    ended = [each for each in attempts.ended(job) if each.number != going]
    spent = budget.spent_by_cause(ended, _present(job, ended), progress_steps=allowed.progress_steps)
    lines = (CauseLine(cause, used, max(0, allowed.restarts - used)) for cause, used in sorted(spent.items()))
    return Restarts(
        budget=allowed.restarts,
        first_s=allowed.first_s,
        longest_s=allowed.longest_s,
        causes=tuple(lines),
        waits_until=_waits_until(job, now),
        ends=tuple(AttemptEnd.objects.filter(job=job).exclude(number=going).order_by("-number")[:ROWS]),
        skips=tuple(BatchSkip.objects.filter(job=job).order_by("-offered_at")[:ROWS]),
        told=_told(job),
        actions=fault_context.class_actions(job),
    )


def _present(job: Job, ended: list[Attempt]) -> Attempt | None:
    """Return the attempt that runs or is being started, None where none is after the last end."""
    row = Epoch.objects.filter(job=job, number=job.epoch).first()
    if row is None or job.state in Job.TERMINAL or any(each.number == job.epoch for each in ended):
        return None
    start = None if row.restored_epoch is None or row.restored_step is None else (row.restored_epoch, row.restored_step)
    return Attempt(
        number=job.epoch,
        told_at="",
        cause="",
        code="",
        signature="",
        start=start,
        reached=core.newest_step_reached(job),
        saved=core.newest_complete_step(job),
    )


def _waits_until(job: Job, now: datetime) -> datetime | None:
    waiting = Failover.objects.filter(job=job, state__in=OPEN, start_after__gt=now)
    return waiting.values_list("start_after", flat=True).first()


def _told(job: Job) -> Told:
    row = Epoch.objects.filter(job=job, number=job.epoch).first()
    steps, read = (tuple(row.skip_steps), tuple(row.skip_read_by)) if row else ((), ())
    stepped = Rank.objects.filter(job=job, first_step_epoch=job.epoch).exclude(rank__in=read)
    unread = tuple(stepped.order_by("rank").values_list("rank", flat=True)) if steps else ()
    return Told(job.epoch, steps, read, unread)
