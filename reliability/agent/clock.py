"""What time is it on the server, as far as this node can know?

The node's own wall clock may be wrong; orders expire by server time. Each answer carries the server's time, and the
offset to this node's monotonic clock is kept from it.
"""

import threading
import time


def steady() -> float:
    """Return seconds that never jump and that go on while the machine is suspended: a lease must run out then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    """Server time derived from answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = time.time() - steady()
        self._uncertainty_s: float | None = None

    def learn(self, server_time: float, *, asked_at: float, answered_at: float) -> None:
        """Take over the time of an answer; `asked_at` and `answered_at` are of `steady`."""
        with self._lock:
            self._offset = server_time - (asked_at + answered_at) / 2
            self._uncertainty_s = (answered_at - asked_at) / 2

    def now(self) -> float:
        """Return server time, seconds since 1970."""
        with self._lock:
            return steady() + self._offset

    def skew(self) -> tuple[float, float] | None:
        """Return by how many seconds this node's wall clock is ahead of the server's, and how sure that is (+-).

        None before the server has answered.
        """
        with self._lock:
            if self._uncertainty_s is None:
                return None
            return time.time() - steady() - self._offset, self._uncertainty_s
