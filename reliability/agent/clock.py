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

    def learn(self, server_time: float, *, asked_at: float, answered_at: float) -> None:
        """Take over the time of an answer; `asked_at` and `answered_at` are of `steady`."""
        with self._lock:
            self._offset = server_time - (asked_at + answered_at) / 2

    def now(self) -> float:
        """Return server time, seconds since 1970."""
        with self._lock:
            return steady() + self._offset
