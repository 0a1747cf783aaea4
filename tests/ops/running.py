"""Starts `manage.py up` for a test in a folder and on ports of its own, and looks at its processes from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from reliability.supervisor.addresses import free_port
from reliability.supervisor.marked import marked

PROJECT = Path(__file__).resolve().parents[2]
FIRST_WEB_PORT = 26000
FIRST_BROKER_PORT = 26500
START_LIMIT_S = 60

T = TypeVar("T")


def until(read: Callable[[], T], *, limit_s: float, what: str) -> T:
    """Return the first true answer of `read`; fail with `what` after the limit."""
    deadline = time.monotonic() + limit_s
    while not (answer := read()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.02)
    return answer


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return an environment for one installation, free of what the caller's own shell sets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPKEEPER_")}
    return (
        kept | {f"STEPKEEPER_{name}": value for name, value in settings.items()} | {"STEPKEEPER_DATA_DIR": str(folder)}
    )


@dataclass(frozen=True)
class Descendants:
    """The processes of one supervisor: its children by number, all others by the marker that they inherited.

    The broker writes its title over its environment, so it is known by its number alone.
    """

    instance: str
    children: set[int]

    def alive(self) -> set[int]:
        return set(marked(self.instance)) | {pid for pid in self.children if running(pid)}


def running(pid: int) -> bool:
    """Return whether there is such a process, other than a dead one that waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Up:
    """One `manage.py up`. Output goes to a file, so that no pipe can fill."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("up",)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.port = free_port("127.0.0.1", FIRST_WEB_PORT)
        self.broker_port = free_port("127.0.0.1", FIRST_BROKER_PORT)
        self.output_path = self.folder.with_suffix(".log")

    @property
    def env(self) -> dict[str, str]:
        own = {"LISTEN": f"127.0.0.1:{self.port}", "BROKER_PORT": str(self.broker_port)}
        return environment(self.folder, **(own | self.settings))

    def start(self) -> "Up":
        """Start it without waiting."""
        with self.output_path.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", *self.command],
                cwd=PROJECT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def ready(self) -> "Up":
        """Start it and wait until it says that it is up."""
        before = self.output.count("Stepkeeper is up")
        self.start()
        until(
            lambda: self.output.count("Stepkeeper is up") > before or self.exit_code is not None,
            limit_s=START_LIMIT_S,
            what=f"up is ready; it printed:\n{self.output}",
        )
        assert self.exit_code is None, self.output
        return self

    @property
    def output(self) -> str:
        return self.output_path.read_text() if self.output_path.exists() else ""

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "up.json").read_text()))

    def pid_of(self, name: str) -> int | None:
        return self.status["children"].get(name, {}).get("pid")

    def descendants(self) -> "Descendants":
        """Return every process that this supervisor started, directly or not, to look at after it is gone."""
        status = self.status
        return Descendants(status["instance"], {child["pid"] for child in status["children"].values()} - {None})

    def signal(self, signum: int) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def wait(self, limit_s: float = 30) -> int:
        assert self.process is not None
        return self.process.wait(limit_s)

    def run(self, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run another management command of the same installation."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def end(self) -> None:
        """End it, whatever state a test left it in."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
