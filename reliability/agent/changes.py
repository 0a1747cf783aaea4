"""How does one thread wait for what another one sees first?"""

import math
import threading
from collections.abc import Callable

from reliability.agent.clock import steady

LOOK_S = 0.1
LONGEST_S = 3600.0


class Changes:
    """Wakes who waits for something to come true."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def tell(self) -> None:
        """Something may have changed."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Return whether it came true within the limit; looked at when told to and at least every LOOK_S."""
        end = steady() + (limit_s if math.isfinite(limit_s) else LONGEST_S)
        with self._changed:
            while not done():
                left = end - steady()
                if left <= 0:
                    return False
                self._changed.wait(min(left, LOOK_S))
        return True
