"""Where did the simulated time go, and how sure is that?

The estimator is the regenerative one: each replica begins with a failure, and the rate is the sum of what was kept
over the sum of the time, with the standard error of a ratio over independent replicas. A replica that began in the
middle of a run would be counted (recovery + downtime) / length too good.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np

from reliability.simulation.laws import Floats


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of all simulated time; they add up to 1."""

    useful: float
    saving: float
    rollback: float
    recovery: float
    downtime: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a simulation found: the effective training rate with its standard error, and where the time went.

    `period_s` is what was kept up between saves of the lowest level, longer than asked for where a drain took longer.
    `failures` is what was simulated (fewer than asked for when the time limit came first), `simulated_s` the job time
    of all replicas, `seconds` what the simulation took.
    """

    ettr: float
    se: float
    shares: Shares
    period_s: float
    failures: int
    simulated_s: float
    seed: int
    seconds: float


class Ledger:
    """Five accounts of seconds for each replica, and the number of its failures."""

    def __init__(self, replicas: int) -> None:
        self.useful = np.zeros(replicas)
        self.saving = np.zeros(replicas)
        self.rollback = np.zeros(replicas)
        self.recovery = np.zeros(replicas)
        self.downtime = np.zeros(replicas)
        self.failures = 0

    @property
    def elapsed(self) -> Floats:
        """Return the calendar time of each replica."""
        return self.useful + self.saving + self.rollback + self.recovery + self.downtime

    def copy(self) -> "Ledger":
        """Return the same accounts, which later entries do not change."""
        return copy.deepcopy(self)

    def dilute(self, availability: float) -> None:
        """Let the cluster stop the job now and then: time goes by, nothing fails and nothing is lost."""
        self.downtime += self.elapsed * (1 / availability - 1)

    def shares(self) -> Shares:
        """Return the shares of all time."""
        total = float(self.elapsed.sum())
        accounts = (self.useful, self.saving, self.rollback, self.recovery, self.downtime)
        return Shares(*(float(account.sum()) / total for account in accounts))

    def standard_error(self, grain_s: float) -> float:
        """Return the standard error of the useful share.

        One grain, the work that a save keeps, is added as the least uncertainty, so that a run in which nothing was
        kept at all does not look certain.
        """
        elapsed = self.elapsed
        total, replicas = float(elapsed.sum()), len(elapsed)
        off = self.useful - elapsed * (float(self.useful.sum()) / total)
        spread = math.sqrt(float(np.square(off / total).sum()) * replicas / max(1, replicas - 1))
        return math.hypot(spread, min(grain_s / total, 1.0))

    def close(self, *, grain_s: float, period_s: float, seed: int, seconds: float) -> Check:
        """Return what was found."""
        shares = self.shares()
        return Check(
            ettr=shares.useful,
            se=self.standard_error(grain_s),
            shares=shares,
            period_s=period_s,
            failures=self.failures,
            simulated_s=float(self.elapsed.sum()),
            seed=seed,
            seconds=seconds,
        )
