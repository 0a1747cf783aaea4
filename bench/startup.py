"""How long until the control plane of one machine is up, down, and up again after a part of it was killed?"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure
from reliability.supervisor import addresses
from tests.ops.running import Up, until

RUNS = 3
LIMIT_S = 60.0


@contextmanager
def installation() -> Iterator[Up]:
    """Give an installation in a folder of its own, ended and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
        up = Up(folder=Path(folder) / "data")
        try:
            yield up
        finally:
            up.end()


def seconds(action: Callable[[], object]) -> float:
    """Return how long an action took."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def again(up: Up, name: str, answers: Callable[[], bool]) -> float:
    """Kill a child and return the seconds until another one of it answers."""
    before = up.pid_of(name)
    if before is None:
        raise RuntimeError(f"{name} does not run")
    os.kill(before, signal.SIGKILL)
    return seconds(
        lambda: until(
            lambda: up.pid_of(name) not in (None, before) and answers(), limit_s=LIMIT_S, what=f"{name} answers"
        )
    )


def stop(up: Up) -> None:
    """End it in order."""
    up.signal(signal.SIGTERM)
    up.wait()


def measure() -> Iterator[Figure]:
    """Return the figures."""
    with installation() as up:
        yield Figure(name="first start: empty folder to a dashboard that answers", samples=[seconds(up.ready)])
        stops = [seconds(lambda: stop(up))]
        starts = []
        for _ in range(RUNS):
            starts.append(seconds(up.ready))
            stops.append(seconds(lambda: stop(up)))
        yield Figure(name="start", samples=starts)
        yield Figure(name="ordered stop", samples=stops)
        up.ready()
        host, port, broker_port = "127.0.0.1", up.port, up.broker_port
        web = [again(up, "web", lambda: addresses.healthy(host, port, host_header="localhost")) for _ in range(RUNS)]
        yield Figure(name="web killed to web answers", samples=web, note="back-off doubles from 0.5 s")
        broker = [again(up, "broker", lambda: addresses.accepts(host, broker_port))]
        yield Figure(name="broker killed to broker answers", samples=broker)
