"""What is known of one supervised child: is it up, how often did it die, when may it be started again?"""

import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reliability.supervisor.processes import ChildSpec, reap, signal_group, spawn

BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
HEALTHY_AFTER_S = 60.0
KEPT_LINES = 15


def next_backoff(previous_s: float, *, lived_s: float) -> float:
    """Return how long to wait before the next start, after a life of `lived_s` seconds."""
    if previous_s == 0 or lived_s >= HEALTHY_AFTER_S:
        return BACKOFF_FIRST_S
    return min(BACKOFF_MOST_S, previous_s * 2)


@dataclass
class Child:
    """One child over all its lives. `now` arguments are a monotonic clock in seconds."""

    spec: ChildSpec
    instance: str
    clock: Callable[[], float]
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    backoff_s: float = 0.0
    started_at: float = 0.0
    start_at: float = 0.0
    last_exit: int | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    @property
    def alive(self) -> bool:
        """Return whether its process runs."""
        return self.process is not None

    def start(self) -> int:
        """Start it; returns the pipe with its output."""
        self.process, output = spawn(self.spec, instance=self.instance)
        self.started_at = self.clock()
        return output

    def signal(self, signum: int) -> None:
        """Send a signal to its process group, if it runs."""
        if self.process is not None:
            signal_group(self.process, signum)

    def notice_death(self) -> bool:
        """Return whether it died since the last look; sets when it may start again."""
        if self.process is None:
            return False
        code = reap(self.process)
        if code is None:
            return False
        now = self.clock()
        self.process, self.last_exit = None, code
        self.deaths += 1
        self.backoff_s = next_backoff(self.backoff_s, lived_s=now - self.started_at)
        self.start_at = now + self.backoff_s
        return True

    def notice_failed_start(self) -> None:
        """Take note that it could not be started: it is tried again later, as after a death."""
        self.backoff_s = next_backoff(self.backoff_s, lived_s=0.0)
        self.start_at = self.clock() + self.backoff_s

    @property
    def ever_ran(self) -> bool:
        """Return whether it was started before."""
        return self.started_at > 0

    def describe(self) -> dict[str, Any]:
        """Return what the status file says of it."""
        return {"pid": self.process.pid if self.process else None, "deaths": self.deaths, "last_exit": self.last_exit}
