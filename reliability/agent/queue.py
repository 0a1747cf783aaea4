"""How do orders reach this node fast? A Celery worker on the node's own queue, without anything of the control plane.

The task only hands the envelope on. It is acknowledged when taken: an order that got lost here comes again with the
answer to a batch, and one that the broker delivers twice is a replay and refused. A broker that is away is asked
again for ever, at least once a second; when the worker ends for any other reason it is started anew.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from reliability.agent.lean import without

with without("django"):  # kombu takes it along wherever it is installed, for the sake of one string type
    from celery import Celery
    from celery.worker import WorkController, state
    from celery.worker.consumer import Consumer

TASK = "agent.order"
CONCURRENCY = 8
RECONNECT_FIRST_S = 0.1
RECONNECT_STEP_S = 0.2
RECONNECT_MOST_S = 1.0

log = logging.getLogger("stepkeeper.agent")


class PatientConsumer(Consumer):
    """A consumer that asks for the broker again and again, soon and for ever."""

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once it is there."""
        told: set[str] = set()

        def away(error: BaseException, _interval: float) -> None:
            if str(error) not in told:
                log.warning("broker away, asking again: reason=%s", error)
                told.add(str(error))

        connected = conn.ensure_connection(
            away,
            None,
            interval_start=RECONNECT_FIRST_S,
            interval_step=RECONNECT_STEP_S,
            interval_max=RECONNECT_MOST_S,
            callback=state.maybe_shutdown,
        )
        self.first_connection_attempt = False
        return connected


def make_app(broker_url: str, receive: Callable[[object], None]) -> Celery:
    """Return the Celery app of a node, with its one task."""
    app = Celery("stepkeeper-agent", set_as_current=False, fixups=[])
    app.conf.update(
        broker_url=broker_url,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=2,
        broker_channel_error_retry=True,
        broker_transport_options={
            "priority_steps": [0],
            "socket_keepalive": True,
            "socket_connect_timeout": 2,
            "health_check_interval": 10,
        },
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_consumer=f"{__name__}:PatientConsumer",
    )

    @app.task(name=TASK, ignore_result=True)
    def order(envelope: object) -> None:
        receive(envelope)

    return app


class OrderQueue:
    """Consumes the node's queue in a thread of its own."""

    def __init__(self, broker_url: str, queue: str, receive: Callable[[object], None]) -> None:
        self._app = make_app(broker_url, receive)
        self._queue = queue
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue", daemon=True)

    def start(self) -> None:
        """Begin to consume."""
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        """Stop consuming."""
        self._stopping.set()
        # The worker looks at this between messages, and between two tries to reach a broker that is away.
        state.should_stop = 0  # type: ignore[assignment]
        self._thread.join(timeout=limit_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                worker = WorkController(
                    app=self._app,
                    pool_cls="threads",
                    concurrency=CONCURRENCY,
                    queues=[self._queue],
                    hostname=f"agent@{self._queue}",
                    without_gossip=True,
                    without_mingle=True,
                    without_heartbeat=True,
                    loglevel=logging.WARNING,
                )
                worker.start()
            except (Exception, SystemExit):
                # Whatever ends the worker, orders must come in again.
                if not self._stopping.is_set():
                    log.exception("the worker ended, starting it anew: queue=%s", self._queue)
            self._stopping.wait(RECONNECT_MOST_S)
