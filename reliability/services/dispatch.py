"""How do services wake other processes: tasks by name, orders to nodes, hints to browsers, all after the commit?

A message only makes things faster: what it would have started is found by the next reconciliation, and an order that
was not delivered comes with the answer to the node's next heartbeat. So a broker that is away costs at most a second
once, is logged once, and is then left alone for a while.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu import Connection
from kombu.pools import producers

from reliability import live

CONNECT_LIMIT_S = 1.0
PAUSE_S = 2.0
TRANSPORT_OPTIONS = {
    "socket_connect_timeout": CONNECT_LIMIT_S,
    "socket_timeout": CONNECT_LIMIT_S,
    "connect_timeout": CONNECT_LIMIT_S,
    "read_timeout": CONNECT_LIMIT_S,
    "write_timeout": CONNECT_LIMIT_S,
    "priority_steps": [0],
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}

_AMQP = ("max_retries", "interval_start", "interval_step", "interval_max", "read_timeout", "write_timeout")
AMQP_OPTIONS = {
    **{key: TRANSPORT_OPTIONS[key] for key in _AMQP},
    "confirm_publish": True,  # a message on the connection of a broker that died is no success
}

log = logging.getLogger(__name__)


class Publisher:
    """Sends Celery messages with a bounded wait, and pauses while the broker is away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._away_until = 0.0
        self._told = False

    def send(self, name: str, args: list[Any], *, queue: str, expires: float) -> bool:
        """Send one task message. Returns whether it went out; never raises for a broker that is away."""
        if time.monotonic() < self._away_until:
            return False
        try:
            self._publish(name, args, queue=queue, expires=expires)
        except Exception as error:  # boundary: each transport raises errors of its own
            self._note_away(error)
            return False
        self._note_back()
        return True

    def _publish(self, name: str, args: list[Any], *, queue: str, expires: float) -> None:
        connection = Connection(
            settings.BROKER_URL, connect_timeout=CONNECT_LIMIT_S, transport_options=_options(settings.BROKER_URL)
        )
        with producers[connection].acquire(block=True, timeout=CONNECT_LIMIT_S) as producer:
            current_app.send_task(name, args, queue=queue, expires=expires, producer=producer, retry=False)

    def _note_away(self, error: Exception) -> None:
        with self._lock:
            self._away_until = time.monotonic() + PAUSE_S
            if not self._told:
                log.warning(
                    "The broker is away (%s); orders go with heartbeat answers, tasks with reconciliation.", error
                )
            self._told = True

    def _note_back(self) -> None:
        if self._told:
            with self._lock:
                self._told = False
                log.warning("The broker is back.")


def _options(url: str) -> dict[str, Any]:
    if url.startswith("amqp"):
        return AMQP_OPTIONS
    return TRANSPORT_OPTIONS


publisher = Publisher()


def task(name: str, *args: Any) -> None:
    """Send a task to the controller after the commit."""
    transaction.on_commit(lambda: _send(name, list(args), "controller", 60.0))


def order(node_name: str, envelope: Mapping[str, str], *, expires: float) -> None:
    """Send a sealed order to the node's own queue after the commit."""
    transaction.on_commit(lambda: _send("agent.order", [dict(envelope)], f"node.{node_name}", expires))


def changed(*topics: str) -> None:
    """Hint to browsers after the commit."""
    transaction.on_commit(lambda: live.changed(*topics))


def _send(name: str, args: list[Any], queue: str, expires: float) -> None:
    publisher.send(name, args, queue=queue, expires=expires)
