"""Which orders an agent obeys, over the broker and over the server's answers, and what it says about the others."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from reliability.domain.orders import derive_key
from tests.agent.conftest import CHECKOUT, AgentProcess, Broker
from tests.agent.ingest import Ingest, until

PERIOD = {"period_plan": [{"from_step": 0, "every_steps": 7}], "plan_version": 2}


@pytest.fixture
def connected(folder: Path, broker: Broker, ingest: Ingest) -> Iterator[AgentProcess]:
    """An agent whose queue is served by a real broker."""
    ingest.broker_url = broker.url
    agent = AgentProcess(folder, ingest.url, ingest.node).start()
    until(lambda: ingest.beats, 20)
    yield agent
    agent.end()


def send(broker: Broker, envelope: Any, node: str = "node-a") -> None:
    """Send an order as the controller does."""
    app = Celery("controller", broker=broker.url, set_as_current=False)
    app.conf.update(task_serializer="json", broker_transport_options={"priority_steps": [0]})
    with app.connection_for_write() as connection:
        app.send_task("agent.order", args=[envelope], queue=f"node.{node}", connection=connection, ignore_result=True)


def refusals(ingest: Ingest) -> list[str]:
    return [body["reason"] for body in ingest.of_kind("order_refused")]


def test_an_order_over_the_broker_is_done_and_answered_at_once(
    ingest: Ingest, broker: Broker, connected: AgentProcess
) -> None:
    send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="first"))
    assert ingest.result("first")["status"] == "done"


def test_orders_come_again_after_the_broker_was_killed_and_came_back(
    ingest: Ingest, broker: Broker, connected: AgentProcess
) -> None:
    send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="before"))
    ingest.result("before")
    broker.kill()
    assert ingest.done("set_period", job="lm", epoch=1, payload=PERIOD) == {}, "answers bring orders without a broker"
    broker.start()
    send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="after"))
    assert ingest.result("after")["status"] == "done"


def test_an_agent_starts_without_a_broker_and_finds_it_later(folder: Path, ingest: Ingest) -> None:
    broker = Broker(folder)
    ingest.broker_url = broker.url
    agent = AgentProcess(folder, ingest.url, ingest.node).start()
    try:
        until(lambda: ingest.beats, 20)
        broker.start()
        send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="late"))
        assert ingest.result("late")["status"] == "done"
    finally:
        agent.end()
        broker.kill()


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("forged", {"key": derive_key("other", "node-a", "1")}),
        ("misdirected", {"node": "node-b"}),
        ("expired", {"expires_at": 1.0}),
    ],
)
def test_an_order_that_must_not_be_obeyed_is_refused_and_reported(
    ingest: Ingest, broker: Broker, connected: AgentProcess, reason: str, change: dict[str, Any]
) -> None:
    send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="bad", **change))
    until(lambda: refusals(ingest) == [reason])
    assert ingest.of_kind("order_result") == []


def test_expiry_is_judged_by_the_servers_clock_and_not_by_the_nodes(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.clock_ahead_s = -3600.0
    until(lambda: len(ingest.beats) > 5)
    assert ingest.done("set_period", job="lm", epoch=1, payload=PERIOD) == {}
    ingest.give(ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, expires_at=ingest.now() - 5))
    until(lambda: refusals(ingest) == ["expired"])


def test_garbage_on_the_queue_is_refused_and_the_next_order_is_done(
    ingest: Ingest, broker: Broker, connected: AgentProcess
) -> None:
    for garbage in ("text", 7, None, [], {}, {"order": "{}", "sig": "00"}):
        send(broker, garbage)
    send(broker, ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="good"))
    assert ingest.result("good")["status"] == "done"
    assert set(until(lambda: len(refusals(ingest)) == 6 and refusals(ingest))) == {"forged"}


def test_a_replayed_order_is_refused_also_after_a_restart(ingest: Ingest, agent: AgentProcess) -> None:
    envelope = ingest.seal("set_period", job="lm", epoch=1, payload=PERIOD, id="once")
    ingest.give(envelope)
    ingest.result("once")
    ingest.give(envelope)
    until(lambda: refusals(ingest) == ["replayed"])
    agent.kill()
    agent.start()
    ingest.give(envelope)
    until(lambda: refusals(ingest) == ["replayed", "replayed"])
    assert len(ingest.of_kind("order_result")) == 1


def test_an_order_asked_again_with_a_new_nonce_is_answered_with_the_kept_result(
    ingest: Ingest, agent: AgentProcess
) -> None:
    order_id = uuid.uuid4().hex
    payload = {"seed": 1, "rounds": 1, "size": 16, "limit_s": 20}
    ingest.order("probe_sdc", payload=payload, id=order_id)
    first = ingest.result(order_id)
    agent.kill()
    agent.start()
    ingest.order("probe_sdc", payload=payload, id=order_id)
    until(lambda: len(ingest.of_kind("order_result")) == 2)
    second = ingest.of_kind("order_result")[1]
    assert second == first, "done anew it would have measured other seconds"


def test_an_order_of_a_lower_epoch_is_refused_as_stale_and_its_sender_is_told(
    ingest: Ingest, agent: AgentProcess
) -> None:
    ingest.done("set_period", job="lm", epoch=5, payload=PERIOD)
    agent.kill()
    agent.start()
    stale = ingest.order("set_period", job="lm", epoch=4, payload=PERIOD)
    assert ingest.result(stale)["status"] == "refused"
    assert until(lambda: refusals(ingest)) == ["stale"]
    assert ingest.of_kind("order_refused")[0]["_epoch"] == 5


def test_neither_agent_nor_its_children_import_django() -> None:
    code = (
        "import sys, reliability.agent.__main__, reliability.agent.ssd_mover, reliability.agent.storage_mover, "
        "reliability.agent.probes.sdc, reliability.agent.probes.bandwidth; "
        "assert 'django' not in sys.modules, 'django was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CHECKOUT, env={"PATH": "/usr/bin:/bin"})
