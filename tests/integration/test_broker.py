"""Orders and tasks go through a real broker, and a broker that is away costs a second and nothing else."""

import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from queue import Empty
from typing import Any

import pytest
from django.db import transaction
from kombu import Connection
from kombu.pools import reset

from reliability.domain import orders as envelopes
from reliability.domain.orders import OrderKind
from reliability.models import Node, OrderRecord
from reliability.services import clock, dispatch, orders
from tests.integration.conftest import Server

pytestmark = [pytest.mark.broker, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["valkey", "rabbitmq"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def url(server: Server, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    scheme = "amqp://guest:guest@127.0.0.1:{}//" if "rabbitmq" in server.argv[0] else "redis://127.0.0.1:{}/0"
    settings.BROKER_URL = scheme.format(server.port)
    monkeypatch.setattr(dispatch, "publisher", dispatch.Publisher())
    yield settings.BROKER_URL
    reset()


@pytest.fixture
def node() -> Node:
    now = clock.now()
    return Node.objects.create(
        name="n1", address="127.0.0.1", runtime="process", key_generation="g", registered_at=now, last_seen_at=now
    )


def _received(url: str) -> list[envelopes.Order]:
    """Take every order that comes within a moment, as the worker of the node would."""
    found = []
    with Connection(url) as connection, connection.SimpleQueue("node.n1") as waiting:
        limit_s = 10.0
        while True:
            try:
                message = waiting.get(timeout=limit_s)
            except Empty:
                return found
            message.ack()
            [envelope], _, _ = message.payload
            found.append(_opened(envelope))
            limit_s = 1.0


def _opened(envelope: dict[str, str]) -> envelopes.Order:
    node = Node.objects.get(name="n1")
    now = clock.now().timestamp()
    return envelopes.unseal(envelope, key=orders.order_key(node), node="n1", now=now, seen_nonces=())


def _issue(node: Node, key: str) -> OrderRecord:
    with transaction.atomic():
        return orders.issue(node, kind=OrderKind.STOP, key=key, payload={"grace_s": 0})


def test_an_order_reaches_the_nodes_own_queue_and_is_genuine(url: str, node: Node) -> None:
    record = _issue(node, "one")
    [order] = _received(url)
    assert (order.id, order.kind, order.payload) == (str(record.pk), "stop", {"grace_s": 0})


def test_an_order_of_a_transaction_that_failed_is_never_sent(url: str, node: Node) -> None:
    with transaction.atomic():
        orders.issue(node, kind=OrderKind.STOP, key="undone", payload={})
        transaction.set_rollback(True)
    record = _issue(node, "done")
    assert [order.id for order in _received(url)] == [str(record.pk)]


def test_a_frozen_broker_holds_one_transaction_up_for_a_moment_and_orders_go_another_way(
    url: str, server: Server, node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_S", 5.0)
    server.signal(signal.SIGSTOP)
    try:
        first = _seconds(lambda: _issue(node, "first"))
        others = _seconds(lambda: [_issue(node, f"more{number}") for number in range(20)])
    finally:
        server.signal(signal.SIGCONT)
    assert first < 4
    assert others < 4, "not each waits anew"
    assert caplog.text.count("The broker is away") == 1
    assert len(orders.overdue(node, clock.now() + timedelta(seconds=3))) == 21
    monkeypatch.setattr(dispatch.publisher, "_away_until", 0.0)
    _received(url)
    record = _issue(node, "afterwards")
    assert str(record.pk) in {order.id for order in _received(url)}


def test_a_broker_that_was_killed_and_came_back_is_used_again(url: str, server: Server, node: Node) -> None:
    _issue(node, "before")
    server.kill()
    assert _seconds(lambda: _issue(node, "meanwhile")) < 4
    server.start()
    dispatch.publisher._away_until = 0.0
    record = _issue(node, "after")
    assert str(record.pk) in {order.id for order in _received(url)}


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
