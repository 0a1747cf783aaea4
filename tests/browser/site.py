"""The product as one runs it: real web process, real broker, a database in a file; rows written from the test."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from django.core.management import call_command
from django.db import connections

from reliability.supervisor import broker

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 40.0


def free_port(first: int) -> int:
    """Return a free port from `first` on."""
    for port in range(first, first + 200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no free port")


class Site:
    """One running installation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.broker_port = free_port(25100), free_port(25400)
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = folder / "stepkeeper.sqlite3"
        self._web: subprocess.Popen[bytes] | None = None
        self._broker: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the processes are told."""
        return {
            **os.environ,
            "STEPKEEPER_DATA_DIR": str(self.folder),
            "STEPKEEPER_BROKER_PORT": str(self.broker_port),
            "DJANGO_SETTINGS_MODULE": "webapp.settings",
        }

    def start_broker(self) -> None:
        """Start the embedded broker."""
        command = broker.argv(broker.binary(), port=self.broker_port, folder=self.folder)
        with (self.folder / "broker.log").open("ab") as log:
            self._broker = subprocess.Popen(command, stdout=log, stderr=log)

    def stop_broker(self) -> None:
        """Kill the broker."""
        self._broker = _ended(self._broker)

    def start_web(self) -> None:
        """Start the web process and wait until it answers."""
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "webapp.asgi:application",
            "--port",
            str(self.port),
            "--log-level",
            "warning",
        ]
        with (self.folder / "web.log").open("ab") as log:
            self._web = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            try:
                if httpx.get(f"{self.url}/sign-in/", timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise RuntimeError(f"the web process did not answer:\n{(self.folder / 'web.log').read_text()}")

    def stop_web(self) -> None:
        """Kill the web process."""
        self._web = _ended(self._web)

    def stop(self) -> None:
        """End everything."""
        self.stop_web()
        self.stop_broker()

    @contextmanager
    def rows(self) -> Iterator[None]:
        """Write to this installation's database within the block, whatever database the test run uses."""
        own = connections["default"]
        site = own.copy()
        site.settings_dict["NAME"] = str(self.database)
        connections["default"] = site
        try:
            yield
        finally:
            site.close()
            connections["default"] = own

    def migrate(self) -> None:
        """Make the tables."""
        call_command("migrate", verbosity=0, interactive=False)


def _ended(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
