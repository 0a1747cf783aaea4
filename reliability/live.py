"""Tells browsers that something changed: a hint, never the truth.

`changed()` only puts topics into a queue; a thread of its own sends them to the channel layer. So a broker that is
away costs the caller nothing, and browsers learn of the change from the hub's own look at the database.
"""

import asyncio
import logging
import os
import queue
import threading
import time

from channels.layers import get_channel_layer

GROUP = "live"
MESSAGE_TYPE = "live.changed"
SEND_LIMIT_S = 0.5
GATHER_S = 0.02

log = logging.getLogger(__name__)


class HintSender:
    """Sends topics to the channel layer from one daemon thread; drops them when nothing can take them."""

    def __init__(self) -> None:
        self._topics: queue.Queue[str] = queue.Queue(maxsize=1000)
        self._lock = threading.Lock()
        self._owner_pid = 0
        self._away = False

    def put(self, topics: tuple[str, ...]) -> None:
        """Queue topics without ever waiting."""
        self._ensure_thread()
        for topic in topics:
            try:
                self._topics.put_nowait(topic)
            except queue.Full:
                return

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._owner_pid == os.getpid():
                return
            self._owner_pid = os.getpid()
            self._topics = queue.Queue(maxsize=1000)
            threading.Thread(target=self._run, name="live-hints", daemon=True).start()

    def _run(self) -> None:
        # One loop for the life of the thread: the channel layer keeps its connections per loop.
        loop = asyncio.new_event_loop()
        while True:
            loop.run_until_complete(self._send(sorted(self._next_topics())))

    def _next_topics(self) -> set[str]:
        topics = {self._topics.get()}
        time.sleep(GATHER_S)
        while True:
            try:
                topics.add(self._topics.get_nowait())
            except queue.Empty:
                return topics

    async def _send(self, topics: list[str]) -> None:
        layer = get_channel_layer()
        if layer is None:
            return
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await layer.group_send(GROUP, {"type": MESSAGE_TYPE, "topics": topics})
        except Exception as error:  # boundary: a hint may be lost for any reason
            if not self._away:
                log.warning("The channel layer is away (%s); browsers follow the database alone.", error)
            self._away = True
        else:
            self._away = False


_sender = HintSender()


def changed(*topics: str) -> None:
    """Hint that these topics changed: overview, job:<id>, node:<id>, failover:<id>. Returns at once."""
    _sender.put(topics)
