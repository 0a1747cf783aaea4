"""May the ranks go on although the agent says nothing any more?

The agent renews `ctl/lease.json` with each heartbeat that the server answered. When the lease is over the agent ends
the ranks by the job's rule; where the agent itself is gone, hangs or crashes again and again, the launcher does it by
the same rule. Without that file nothing is ever ended.
"""

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .. import progress
from ..folder import JobFolder

LOOK_S = 0.2
GRACE_S = 0.5
"""Seconds that an agent which lives has to act first: it knows more, and reports what it does."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What the agent last said. `until` is of CLOCK_BOOTTIME, which goes on while the machine is suspended."""

    until: float
    lease_s: float
    rule: str
    startup_s: float
    slow_steps: float


def steady() -> float:
    """Return seconds of the clock a lease is counted on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseWatch:
    """Follows the lease and the steps of the ranks of one attempt after the other."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._known: Lease | None = None
        self._next_look = 0.0
        self.begin(0, ())

    def begin(self, epoch: int, ranks: Iterable[int]) -> None:
        """Take over that an attempt starts now; what an older one reached does not count."""
        self._epoch = epoch
        self._steps: dict[int, int | None] = dict.fromkeys(ranks)
        self._last_step_at = steady()
        self._step_s = 0.0

    def over(self) -> str:
        """Return why the ranks must end now, '' while they may go on. Looks at most every LOOK_S."""
        now = steady()
        if now < self._next_look:
            return ""
        self._next_look = now + LOOK_S
        self._read_steps(now)
        self._known = self._read() or self._known
        lease = self._known
        if lease is None or now <= lease.until + GRACE_S or not self._demanded(lease, now):
            return ""
        unanswered_s = now - lease.until + lease.lease_s
        why = f"the lease ran out: no heartbeat was answered for {unanswered_s:.1f} s (rule {lease.rule}"
        return why + (f", no step for {now - self._last_step_at:.1f} s)" if lease.rule != "stop" else ")")

    def _demanded(self, lease: Lease, now: float) -> bool:
        if lease.rule == "stop":
            return True
        if lease.rule != "stop_when_stuck":
            return False
        stepped = any(step is not None for step in self._steps.values())
        patience_s = lease.slow_steps * self._step_s if stepped else lease.startup_s
        return now - self._last_step_at > max(lease.lease_s, patience_s)

    def _read_steps(self, now: float) -> None:
        self._step_s = 0.0
        for rank, before in self._steps.items():
            found = progress.read(self._folder.progress(rank))
            if found is None or found.epoch != self._epoch or found.step <= found.restored_step:
                continue
            if found.step != before:
                self._steps[rank], self._last_step_at = found.step, now
            if math.isfinite(found.step_s):
                self._step_s = max(self._step_s, found.step_s)

    def _read(self) -> Lease | None:
        """A file that is missing or half written leaves what was known."""
        try:
            raw: dict[str, Any] = json.loads((self._folder.ctl / "lease.json").read_bytes())
            numbers = {name: float(raw[name]) for name in ("until", "lease_s", "startup_s", "slow_steps")}
            return Lease(rule=str(raw["rule"]), **numbers)
        except (OSError, ValueError, TypeError, KeyError):
            return None
