"""Which processes are the control plane, and in which order do they come up?

The broker first (unless it runs elsewhere), then the database schema, then web, controller and beat. The
broker ends last, so that a task that still runs can finish.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reliability.supervisor import addresses, broker
from reliability.supervisor.processes import ChildSpec
from reliability.supervisor.supervisor import StartFailed, Supervisor

BROKER_HOST = "127.0.0.1"
CONTROLLER_THREADS = 4
BROKER_LIMIT_S = 15.0
WEB_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Where everything is. `broker_port` is None when the broker runs elsewhere."""

    project: Path
    data: Path
    host: str
    port: int
    host_header: str
    broker_port: int | None

    @property
    def url(self) -> str:
        """Return the address of the dashboard."""
        return addresses.url(self.host, self.port)

    def check_ports(self) -> None:
        """Raise StartFailed when a port is taken, before anything runs."""
        wanted = [(self.host, self.port, "web", "STEPKEEPER_LISTEN")]
        if self.broker_port is not None:
            wanted.append((BROKER_HOST, self.broker_port, "broker", "STEPKEEPER_BROKER_PORT"))
        for host, port, name, variable in wanted:
            reason = addresses.refusal(host, port)
            if reason:
                raise StartFailed(
                    f"{name}: cannot listen on {host}:{port} ({reason}). "
                    f"End what uses it, or set {variable} to another address."
                )

    def bring_up(self, supervisor: Supervisor, *, prepare_database: Callable[[], None]) -> None:
        """Start everything and return when the web process answers. Raises StartFailed."""
        if self.broker_port is not None:
            port = self.broker_port
            child = supervisor.start(self._broker_spec(port))
            supervisor.wait_for(
                child,
                lambda: addresses.accepts(BROKER_HOST, port),
                limit_s=BROKER_LIMIT_S,
                what=f"nothing listens on port {port}",
            )
        prepare_database()
        web = supervisor.start(self._web_spec())
        supervisor.start(self._celery_spec("controller", self._worker_options()))
        supervisor.start(
            self._celery_spec("beat", ("beat", "--schedule", str(self.data / "beat-schedule"), "--pidfile="))
        )
        supervisor.wait_for(
            web,
            lambda: addresses.healthy(self.host, self.port, host_header=self.host_header),
            limit_s=WEB_LIMIT_S,
            what=f"{self.url}healthz does not answer",
        )
        supervisor.announce(self.url)

    def _broker_spec(self, port: int) -> ChildSpec:
        folder = self.data / "broker"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            program = broker.binary()
        except broker.BrokerMissing as error:
            raise StartFailed(str(error)) from error
        return ChildSpec(
            name="broker", argv=broker.argv(program, port=port, folder=folder), cwd=self.project, stop_stage=1
        )

    def _web_spec(self) -> ChildSpec:
        options = ("--host", self.host, "--port", str(self.port), "--timeout-graceful-shutdown", "3")
        command = (sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--no-access-log", *options)
        return ChildSpec(name="web", argv=command, cwd=self.project)

    def _celery_spec(self, name: str, options: tuple[str, ...]) -> ChildSpec:
        command = (sys.executable, "-m", "celery", "--quiet", "--app", "webapp", *options)
        return ChildSpec(name=name, argv=command, cwd=self.project)

    @staticmethod
    def _worker_options() -> tuple[str, ...]:
        """Threads: the tasks are short and wait for the database; a pool of processes would add grandchildren."""
        pool = ("--pool", "threads", "--concurrency", str(CONTROLLER_THREADS))
        quiet = ("--without-gossip", "--without-mingle")
        return ("worker", "--queues", "controller", "--hostname", "controller@%h", *pool, *quiet)
