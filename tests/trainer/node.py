"""One node of a job as the trainer sees it: its folder, its launcher, and an agent played by the test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
REPO = Path(__file__).resolve().parents[2]


def wait_until(look: Callable[[], T], what: str, limit_s: float = 20.0) -> T:
    """Return what `look` returns as soon as that is true; fail when the limit passes."""
    deadline = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.003)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def write_whole(path: Path, value: Any) -> None:
    part = path.with_suffix(".tmp")
    part.write_text(value if isinstance(value, str) else json.dumps(value))
    part.replace(path)


class Node:
    """A launcher process over a job folder."""

    module = "reliability.trainer.launcher"

    def __init__(self, root: Path, *, python: str = sys.executable, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        for part in ("ctl", "mem", "log", "run"):
            (root / part).mkdir(parents=True, exist_ok=True)
        self._python = python
        self._env = {**os.environ, "STEPKEEPER_DIR": str(root), "PYTHONPATH": str(REPO), **(env or {})}
        self._env.pop("DJANGO_SETTINGS_MODULE", None)
        self.launcher: subprocess.Popen[bytes] | None = None

    def start(self, *preload: str, limit_s: float = 30.0) -> dict[str, Any]:
        """Start the launcher and wait until it is ready."""
        argv = [self._python, "-m", self.module]
        for name in preload:
            argv += ["--preload", name]
        with (self.root / "launcher.log").open("ab") as log:
            self.launcher = subprocess.Popen(argv, env=self._env, stdout=log, stderr=log, cwd=self.root)
        ours = self.launcher.pid
        return wait_until(
            lambda: (ready := self.read("ctl/ready.json")) and ready["pid"] == ours and ready,
            f"launcher ready; it said: {self.said()}",
            limit_s,
        )

    def said(self) -> str:
        log = self.root / "launcher.log"
        return log.read_text() if log.exists() else ""

    def read(self, name: str) -> Any:
        try:
            return json.loads((self.root / name).read_text())
        except FileNotFoundError:
            return None

    def order(
        self,
        epoch: int,
        program: Sequence[str],
        ranks: Sequence[Mapping[str, str]] = ({},),
        *,
        mode: str = "fork",
        first_rank: int = 0,
        workdir: Path | None = None,
    ) -> None:
        """Write the epoch file, as the agent does."""
        entries = [
            {"rank": first_rank + place, "local_rank": place, "env": {"RANK": str(first_rank + place), **env}}
            for place, env in enumerate(ranks)
        ]
        order = {"epoch": epoch, "stop": False, "program": list(program), "mode": mode, "workdir": str(workdir or "")}
        write_whole(self.root / f"ctl/epoch-{epoch}.json", {**order, "ranks": entries})

    def order_stop(self, epoch: int) -> None:
        write_whole(self.root / f"ctl/epoch-{epoch}.json", {"epoch": epoch, "stop": True})

    def pids(self, epoch: int) -> dict[str, int]:
        """Wait for the attempt to have been started and return its processes by rank."""
        run = wait_until(lambda: self.read(f"ctl/run-{epoch}.json"), f"epoch {epoch} started; {self.said()}")
        return run["pids"]

    def exit_of(self, epoch: int, rank: int = 0, limit_s: float = 20.0) -> dict[str, Any]:
        """Wait for the end of a rank."""
        return wait_until(lambda: self.read(f"ctl/exit-{epoch}-{rank}.json"), f"end of {epoch}/{rank}", limit_s)

    def log_of(self, epoch: int, rank: int = 0) -> str:
        return (self.root / f"log/{epoch}-{rank}.log").read_text()

    def stop(self) -> int:
        """End the launcher as a container's stop does and return its exit code."""
        if self.launcher is None:
            return 0
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGTERM)
        try:
            return self.launcher.wait(10)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait(10)
            raise
