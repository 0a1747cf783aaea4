"""How fast may snapshots leave the node? A limit that spreads them evenly, so that training keeps the network."""

import threading
import time
from collections.abc import Callable


class Pace:
    """Lets through at most `bytes_per_s` on average; 0 means no limit. Uses a clock that nobody sets."""

    def __init__(
        self,
        bytes_per_s: float = 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until `count` bytes more may leave."""
        if self._bytes_per_s <= 0:
            return
        with self._lock:
            now = self._clock()
            waiting = self._free_at - now
            self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        if waiting > 0:
            self._sleep(waiting)
