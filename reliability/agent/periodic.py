"""What is done again and again on its own thread, so that a call that hangs holds up nothing else?"""

import logging
import threading
from collections.abc import Callable

from reliability.errors import ReliabilityError

log = logging.getLogger("stepkeeper.agent")


class Periodic:
    """Calls `work` every `period_s` until stopped."""

    def __init__(self, name: str, period_s: float, work: Callable[[], None]) -> None:
        self._period_s = period_s
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present call."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except ReliabilityError as error:
                log.warning("%s: code=%s reason=%s", self._thread.name, error.code, error.message)
            except Exception:
                # A duty that fails once must be tried again at its next turn.
                log.exception("%s failed, trying again", self._thread.name)
            self._stopping.wait(self._period_s)
