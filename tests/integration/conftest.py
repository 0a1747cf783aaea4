"""Real servers for the integration tests: Valkey, RabbitMQ, PostgreSQL, each in a folder and on a port of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reliability.supervisor import broker

PORTS = iter(range(24100, 24900))
START_LIMIT_S = 90.0


def free_port() -> int:
    """Return a port of this folder's range that nobody listens on."""
    for port in PORTS:
        with contextlib.closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no free port is left from 24100 to 24899")


def until(reached: Callable[[], bool], *, limit_s: float, what: str) -> None:
    """Wait until something is so, or fail."""
    ends = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < ends, f"{what} did not happen within {limit_s:g} s"
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Return whether something accepts connections on a local port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Return a folder that servers of any user may use."""
    made = Path(tempfile.mkdtemp(prefix="stepkeeper-integration-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Server:
    """One server process in a group of its own."""

    def __init__(self, argv: list[str], *, port: int, env: dict[str, str], log: Path, user: str | None = None) -> None:
        self.argv, self.port, self.env, self.log, self.user = argv, port, env, log, user
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.argv,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                user=self.user,
            )
        try:
            until(lambda: listens(self.port), limit_s=START_LIMIT_S, what=f"the start of {self.argv[0]}")
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}: {self.log.read_text(errors='replace')[-2000:]}") from None

    def signal(self, number: int) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.process.wait(30)
            self.process = None


@pytest.fixture(scope="session")
def valkey(folder: Path) -> Iterator[Server]:
    """Run the embedded broker's program."""
    home = folder / "valkey"
    home.mkdir()
    port = free_port()
    argv = list(broker.argv(broker.binary(), port=port, folder=home))
    server = Server(argv, port=port, env=dict(os.environ), log=folder / "valkey.log")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def rabbitmq(folder: Path) -> Iterator[Server]:
    """Run Debian's RabbitMQ under a node name and an Erlang port mapper of its own."""
    home = folder / "rabbitmq"
    home.mkdir()
    port, distribution, mapper = free_port(), free_port(), free_port()
    (home / "enabled_plugins").write_text("[].")
    env = {
        **os.environ,
        "HOME": str(home),
        "RABBITMQ_NODENAME": f"stepkeeper{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    server = Server([program], port=port, env=env, log=folder / "rabbitmq.log")
    server.start()
    yield server
    server.kill()
    subprocess.run(["epmd", "-port", str(mapper), "-kill"], env=env, capture_output=True, timeout=20, check=False)


def postgres_program(name: str) -> str:
    """Return the path of a PostgreSQL program; Debian keeps the server's own out of PATH."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = str(installed[0]) if installed else shutil.which(name)
    assert found, f"PostgreSQL's {name} is not installed"
    return found


@pytest.fixture(scope="session")
def postgres(folder: Path) -> Iterator[Server]:
    """Run PostgreSQL with a database of its own; as its own user when the tests run as root, as it insists."""
    user = "postgres" if os.geteuid() == 0 else None
    home = folder / "postgres"
    home.mkdir()
    if user:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    data, port = home / "data", free_port()
    env = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    subprocess.run(
        [postgres_program("initdb"), "-D", str(data), "-U", "stepkeeper", "-A", "trust", "--no-sync"],
        env=env,
        user=user,
        check=True,
        capture_output=True,
        timeout=120,
        cwd=home,
    )
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={home}", "-c", "fsync=off"]
    argv = [postgres_program("postgres"), "-D", str(data), "-p", str(port), *options]
    server = Server(argv, port=port, env=env, log=folder / "postgres.log", user=user)
    server.start()
    yield server
    server.kill()
