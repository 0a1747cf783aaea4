"""How did the attempts of a job end, what may it still spend, and which batches does it leave out?"""

from reliability import conf
from reliability.domain.budget import Allowance, Attempt
from reliability.models import AttemptEnd, BatchSkip, Job


def allowance(job: Job) -> Allowance:
    """Return what a job may spend on restarts."""
    policy = conf.cluster_policy()
    return Allowance(
        restarts=job.restart_budget,
        first_s=policy.back_off_s,
        longest_s=policy.back_off_longest_s,
        progress_steps=policy.progress_steps,
        near_steps=policy.near_steps,
    )


def attempt(row: AttemptEnd) -> Attempt:
    """Return an end as the domain decides on it."""
    start = None if row.start_epoch is None or row.start_step is None else (row.start_epoch, row.start_step)
    return Attempt(
        number=row.number,
        told_at=f"{row.at:%d %b %H:%M:%S} UTC",
        cause=row.cause,
        code=row.code,
        signature=row.signature,
        node=row.node,
        start=start,
        reached=row.reached,
        last_step=row.last_step,
        saved=row.saved,
        counts=row.counts,
    )


def ended(job: Job, *, through: int | None = None) -> list[Attempt]:
    """Return the attempts that ended since a person started the job, oldest first (those up to an epoch)."""
    rows = AttemptEnd.objects.filter(job=job).order_by("number")
    if job.start_asked_at is not None:
        rows = rows.filter(at__gte=job.start_asked_at)  # who starts it again gives it new budgets
    if through is not None:
        rows = rows.filter(number__lte=through)
    return [attempt(row) for row in rows]


def skipped_steps(job: Job) -> list[int]:
    """Return the steps whose batches all ranks leave out, in order."""
    rows = BatchSkip.objects.filter(job=job, state=BatchSkip.State.APPROVED)
    return list(rows.order_by("step").values_list("step", flat=True))
