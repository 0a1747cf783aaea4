"""What would a fixed period have brought on a list of failures that really happened?

Instants are on the calendar: a failure that strikes while the job is down begins the downtime anew.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reliability.simulation.job import Job, book
from reliability.simulation.laws import Floats
from reliability.simulation.ledger import Ledger, Shares
from reliability.simulation.limits import LARGEST, MOST_FAILURES, MOST_LIMIT_S, positive, refuse

LEAST_PERIODS = 9
MOST_WORK = 4_000_000
"""So many gaps are looked at in one search, a few seconds: of a long record fewer periods are tried."""


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
    instants = np.sort(_checked("failed_at_s", failed_at_s, least=2, low=-LARGEST))
    return np.diff(instants)


def replay(gaps_s: Sequence[float] | Floats, job: Job) -> Replayed:
    """Run a job over recorded gaps: each begins with a failure and ends with the next one. Raises InvalidInput."""
    return _replay(_recorded(gaps_s), job)


def best_period(
    gaps_s: Sequence[float] | Floats,
    job: Job,
    *,
    low_s: float,
    high_s: float,
    points: int = 200,
    limit_s: float = 20.0,
) -> Replayed:
    """Return the best fixed period between two, by search: a grid of equal ratios, then a finer one around its best.

    `job` says everything but the period. The middle is tried first; when the time limit comes, the best so far is the
    answer. Raises InvalidInput.
    """
    gaps, late = _recorded(gaps_s), _clock(limit_s)
    low, high = positive("low_s", low_s), positive("high_s", high_s)
    low = max(low, math.nextafter(job.save_stall_s, math.inf))
    if low >= high:
        raise refuse("high_s", "must be above the low end and the save stall")
    points = max(LEAST_PERIODS, min(points, 2000, MOST_WORK // len(gaps)))
    best = _best(gaps, job, low, high, points, late)
    step = (high / low) ** (1 / (points - 1))
    finer = _best(gaps, job, max(low, best.period_s / step), min(high, best.period_s * step), points, late)
    return max(best, finer, key=lambda found: found.ettr)


def _clock(limit_s: float) -> Callable[[], bool]:
    end = time.monotonic() + positive("limit_s", limit_s, most=MOST_LIMIT_S)
    return lambda: time.monotonic() >= end


def _best(gaps: Floats, job: Job, low: float, high: float, points: int, late: Callable[[], bool]) -> Replayed:
    periods = np.clip(np.geomspace(low, high, points), low, high)
    best: Replayed | None = None
    for index in sorted(range(points), key=lambda index: abs(2 * index - points + 1)):
        found = _replay(gaps, replace(job, period_s=float(periods[index])))
        best = found if best is None or found.ettr > best.ettr else best
        if late():
            break
    assert best is not None
    return best


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
    if not ((found >= low) & (found <= LARGEST)).all():
        raise refuse(field, f"must be finite numbers of seconds from {low:g}")
    return found
