"""A job as a plain state machine, one event after the other: what the simulator's bookkeeping must add up to.

States: down, recover, run, stall. The clock of calendar time goes on in all of them, the time to the next failure only
outside downtime. A copy is durable once its drain has ended.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ACCOUNTS = ("useful", "saving", "rollback", "recovery", "downtime")


@dataclass
class Machine:
    """One job; `stop_requests` are instants of planned stops, each met at the end of the next save."""

    period_s: float
    save_stall_s: float
    recovery_s: float
    downtime_s: float = 0.0
    drain_s: float = 0.0
    stop_requests: Sequence[float] = ()
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0.0))
    now: float = 0.0
    failures: int = 0

    def live(self, uptimes: Iterable[float]) -> None:
        """Begin with a failure; each restart has an uptime, the exposed seconds from there to the next failure."""
        stops = iter([*self.stop_requests, math.inf])
        self.next_stop = next(stops)
        for uptime in uptimes:
            self._pass("downtime", self.downtime_s)
            self._pass("recovery", min(uptime, self.recovery_s))
            if uptime < self.recovery_s or self._struck(uptime - self.recovery_s):
                self.failures += 1
            else:
                self.next_stop = next(stops)

    def _struck(self, left: float) -> bool:
        """Run and stall in turn; returns True for a failure, False for a planned stop."""
        copies: list[float] = []
        while left >= self.period_s:
            self.now, left = self.now + self.period_s, left - self.period_s
            copies.append(self.now + self.drain_s)
            if self.next_stop <= self.now:
                self._keep(len(copies))
                return False
        self._pass("rollback", left)
        safe = sum(drained_at <= self.now for drained_at in copies)
        self._keep(safe)
        self.spent["rollback"] += (len(copies) - safe) * self.period_s
        return True

    def _keep(self, copies: int) -> None:
        self.spent["useful"] += copies * (self.period_s - self.save_stall_s)
        self.spent["saving"] += copies * self.save_stall_s

    def _pass(self, account: str, seconds: float) -> None:
        self.spent[account] += seconds
        self.now += seconds
