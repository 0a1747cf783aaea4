"""A mover as the agent starts it, with folders of its own, for tests of what it does."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from reliability.agent import floors, jobrecord
from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from tests.agent.conftest import CHECKOUT

JOB = "lm"


class MoverProcess:
    """One mover as the agent starts it, with its folders."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self.module = module
        self.memory = folder / "memory" / JOB / "mem"
        self.ssd = folder / "ssd"
        self.storage = folder / "storage"
        self.jobs = folder / "jobs"
        for path in (self.memory, self.ssd, self.storage, self.jobs):
            path.mkdir(parents=True, exist_ok=True)
        self.record = JobRecord(job=JOB, epoch=1, started_epoch=1, ranks=[0], storage_dir=str(self.storage))
        self.save()
        self.process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.said: list[dict[str, Any]] = []

    def save(self) -> None:
        jobrecord.save(self.jobs, self.record)

    def safe(self, *, epoch: int = 1, ssd: int | None = None, storage: int | None = None) -> None:
        """Keep what the server says is safe, as the agent does."""
        floors.save(self.jobs, JOB, Floors(epoch=epoch, ssd=ssd, storage=storage))

    def start(self) -> None:
        argv = [sys.executable, "-m", f"reliability.agent.{self.module}", "--node=n", f"--parent={os.getpid()}"]
        argv += [f"--jobs-dir={self.jobs}", f"--memory-dir={self.folder / 'memory'}", f"--ssd-dir={self.ssd}"]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT)

    def wake(self) -> None:
        """Have it look at once, as the agent does when there is something new."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def listen(self) -> list[dict[str, Any]]:
        """Return all lines said so far."""
        assert self.process is not None
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], 0)[0]:
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                break
            self._pending += piece
        *lines, self._pending = self._pending.split(b"\n")
        self.said += [json.loads(line) for line in lines]
        return self.said

    def steps(self) -> list[int]:
        return [line["body"]["step"] for line in self.listen() if line["kind"] == "snapshot_copy"]

    def problems(self) -> list[dict[str, Any]]:
        return [line["body"] for line in self.listen() if line["kind"] == "snapshot_problem"]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
        self.process = None
