"""What would a fixed period have brought on a list of failures that really happened?

Instants are on the calendar: a failure that strikes while the job is down begins the downtime anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reliability.simulation.job import Job, book
from reliability.simulation.laws import Floats
from reliability.simulation.ledger import Ledger, Shares
from reliability.simulation.limits import MOST_FAILURES, MOST_S, positive, refuse

LEAST_PERIODS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The effective training rate of a period over the recorded time, and where that time went.

    `se` is the standard error if the gaps are taken as independent draws of one law.
    """

    period_s: float
    ettr: float
    se: float
    shares: Shares
    failures: int
    elapsed_s: float


def gaps_between(failed_at_s: Sequence[float]) -> Floats:
    """Return the seconds from failure to failure; the instants may come in any order. Raises InvalidInput."""
    instants = np.sort(_checked("failed_at_s", failed_at_s, least=2, low=-MOST_S))
    return np.diff(instants)


def replay(gaps_s: Sequence[float] | Floats, job: Job) -> Replayed:
    """Run a job over recorded gaps: each begins with a failure and ends with the next one. Raises InvalidInput."""
    return _replay(_recorded(gaps_s), job)


def best_period(
    gaps_s: Sequence[float] | Floats, job: Job, *, low_s: float, high_s: float, points: int = 200
) -> Replayed:
    """Return the best fixed period between two, by search: a grid of equal ratios, then a finer one around its best.

    `job` says everything but the period. Raises InvalidInput.
    """
    gaps = _recorded(gaps_s)
    low, high = positive("low_s", low_s), positive("high_s", high_s)
    low = max(low, math.nextafter(job.save_stall_s, math.inf))
    if low >= high:
        raise refuse("high_s", "must be above the low end and the save stall")
    points = max(LEAST_PERIODS, min(points, 2000))
    best = _best(gaps, job, low, high, points)
    step = (high / low) ** (1 / (points - 1))
    return max(
        best,
        _best(gaps, job, max(low, best.period_s / step), min(high, best.period_s * step), points),
        key=lambda found: found.ettr,
    )


def _best(gaps: Floats, job: Job, low: float, high: float, points: int) -> Replayed:
    periods = np.clip(np.geomspace(low, high, points), low, high)
    return max((_replay(gaps, _with_period(job, float(period))) for period in periods), key=lambda found: found.ettr)


def _with_period(job: Job, period_s: float) -> Job:
    return Job(
        period_s=period_s,
        save_stall_s=job.save_stall_s,
        recovery_s=job.recovery_s,
        downtime_s=job.downtime_s,
        drain_s=job.drain_s,
    )


def _recorded(gaps_s: Sequence[float] | Floats) -> Floats:
    gaps = _checked("gaps_s", gaps_s, least=1, low=0.0)
    if not gaps.any():
        raise refuse("gaps_s", "no time passes between these failures")
    return gaps


def _replay(gaps: Floats, job: Job) -> Replayed:
    ledger = Ledger(len(gaps))
    down = np.minimum(gaps, job.downtime_s)
    up = gaps - down
    book(ledger, job, down, up, job.durable(np.maximum(up - job.recovery_s, 0.0)))
    shares = ledger.shares()
    return Replayed(
        period_s=job.cycle_s,
        ettr=shares.useful,
        se=ledger.standard_error(job.work_s),
        shares=shares,
        failures=len(gaps),
        elapsed_s=float(gaps.sum()),
    )


def _checked(field: str, values: Sequence[float] | Floats, *, least: int, low: float) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse(field, "must be a list of numbers of seconds") from error
    if found.ndim != 1 or not least <= len(found) <= MOST_FAILURES:
        raise refuse(field, f"must be a list of {least} to {MOST_FAILURES} numbers")
    if not ((found >= low) & (found <= MOST_S)).all():
        raise refuse(field, f"must be finite numbers of seconds from {low:g}")
    return found
