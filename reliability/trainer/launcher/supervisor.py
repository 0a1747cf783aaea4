"""What does the launcher do next? One loop: look for a newer epoch, end the old ranks, start the new ones, listen.

Everything is level-triggered: a signal, a watched folder and a pipe only wake the loop, which then looks at what is.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from ..folder import JobFolder
from . import linux
from .attempts import Attempts, forget_old_logs
from .lease import LeaseWatch
from .orders import EpochOrder, OrderBook

IDLE_S = 0.25
POLL_S = 0.005  # without a folder watch, and while killed processes are going away
LOGS_KEPT = 5


class Supervisor:
    """Obeys the epoch files of one job's folder until it is told to end."""

    def __init__(self, folder: JobFolder, attempts: Attempts, parent: int | None) -> None:
        """`parent` is a descriptor that becomes readable when the launcher must end with its parent."""
        self._folder = folder
        self._attempts = attempts
        self._book = OrderBook(folder.ctl)
        self._epoch = self._book.taken_up()
        self._waiting: EpochOrder | None = None
        self._ending = False
        self._lease = LeaseWatch(folder)
        self._lease_over = ""
        self._parent = parent
        self._watch = linux.watch_folder(folder.ctl)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or the end of the parent, then return with no process left.

        Raises InRank in each forked rank.
        """
        with self._signals():
            while not self._done():
                self._listen()

    def _done(self) -> bool:
        if self._ending:
            return self._attempts.kill()
        if not self._attempts.reap():
            self._keep_lease()
        self._take_up()
        self._move_on()
        return False

    def _take_up(self) -> None:
        order = self._book.newest(above=self._epoch)
        while self._book.complaints:
            say(self._book.complaints.pop(0))
        if order is not None:
            self._waiting = order
            self._epoch = order.epoch

    def _keep_lease(self) -> None:
        """Ranks whose lease ran out are killed until none is left, whatever the lease says meanwhile."""
        self._lease_over = self._lease_over or self._lease.over()
        if self._lease_over and self._attempts.kill(self._lease_over):
            say(f"all ranks ended: {self._lease_over}")
            self._lease_over = ""

    def _move_on(self) -> None:
        """The ranks of an attempt start when nothing of any older one is left."""
        if self._waiting is None or not self._attempts.kill():
            return
        order, self._waiting = self._waiting, None
        self._lease_over = ""
        self._lease.begin(order.epoch, [rank.rank for rank in order.ranks])
        forget_old_logs(self._folder.log, below=order.epoch - LOGS_KEPT)
        self._attempts.start(order, [*self._sources(), self._waker])

    def _listen(self) -> None:
        outputs = self._attempts.outputs
        hurried = self._watch is None or self._waiting is not None or self._ending or bool(self._lease_over)
        for fd in _readable([*self._sources(), *outputs], POLL_S if hurried else IDLE_S):
            if fd in outputs:
                outputs[fd].drain()
            elif fd == self._parent:
                self._ending = True
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 65536)

    def _sources(self) -> list[int]:
        """The descriptors that wake the loop, besides the output of the ranks."""
        return [fd for fd in (self._wake, self._watch, self._parent) if fd is not None]

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        yield


def _readable(sources: list[int], limit_s: float) -> list[int]:
    poll = select.poll()
    for fd in sources:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _events in poll.poll(limit_s * 1000)]


def say(text: str) -> None:
    """Print a line to the container's own log."""
    print(f"stepkeeper launcher: {text}", file=sys.stderr, flush=True)  # noqa: T201
