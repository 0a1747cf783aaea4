"""An agent waits for an answer as long as the server's silence limit leaves, and longer for one that is only slow."""

import socket

import pytest

from reliability.agent.clock import ServerClock, steady
from reliability.agent.identity import Identity
from reliability.agent.server import Server, ServerAway
from reliability.domain.retrying import LONGEST_ANSWER_S, QUICKEST, Schedule

IDENTITY = {"node": "n", "token": "t", "order_key": "k", "queue": "q", "broker_url": "", "heartbeat_s": 1.0}


def test_a_server_that_takes_messages_and_does_not_answer_is_given_more_time_each_time() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", clock=ServerClock())
        server.keep_to(QUICKEST)
        waited = []
        for _ in range(2):
            began = steady()
            with pytest.raises(ServerAway, match="does not answer"):
                server.batch({}, token="t")
            waited.append(steady() - began)
        server.close()
    assert waited[0] < LONGEST_ANSWER_S
    assert waited[0] >= QUICKEST.answer_s
    assert waited[1] >= 2 * QUICKEST.answer_s


def test_the_schedule_follows_from_what_the_server_told() -> None:
    assert Identity(**IDENTITY, lease_s=4.0).schedule == Schedule(), "an older server tells no limit"
    told = Identity(**IDENTITY, lease_s=4.0, silence_s=6.0)
    assert told.schedule.worst_s == pytest.approx(3.0)
