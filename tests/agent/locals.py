"""Parts of jobs on a node without a server: real launchers and ranks below a process runtime that can fail."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.agent import payloads
from reliability.agent.fields import Fields
from reliability.agent.jobs import LocalJobs
from reliability.agent.localjob import LocalJob
from reliability.agent.payloads import ContainerPlan, StartPlan
from reliability.ports import ContainerInfo
from reliability.runtimes.process import ProcessRuntime

JOB = "lm"
NODE = "node-a"
PROGRAM = Path(__file__).with_name("program.py")


class TroubledRuntime(ProcessRuntime):
    """The process runtime; `before` is called with the name of each call before it is made, and may wait or raise."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir, confirm_s=2.0)
        self.before: Callable[[str], None] = lambda call: None
        self.after_list: Callable[[], None] = lambda: None

    def inspect(self, name: str) -> ContainerInfo:
        self.before("inspect")
        return super().inspect(name)

    def stop(self, name: str, *, grace_s: float) -> None:
        self.before("stop")
        super().stop(name, grace_s=grace_s)

    def list(self, labels: Mapping[str, str]) -> Sequence[ContainerInfo]:
        self.before("list")
        found = super().list(labels)
        self.after_list()
        return found


class Held:
    """A runtime call that waits until it is let go."""

    def __init__(self, runtime: TroubledRuntime, call: str) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self._call = call
        runtime.before = self._hold

    def _hold(self, call: str) -> None:
        if call == self._call and not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(20)


class LocalNode:
    """The parts of one node; `reborn` gives those of the agent's next life."""

    def __init__(self, folder: Path, runtime: TroubledRuntime) -> None:
        self.folder = folder
        self.runtime = runtime
        self.jobs_dir = folder / "jobs"
        self.jobs_dir.mkdir(exist_ok=True)
        self.reports: list[dict[str, Any]] = []
        self.jobs = self._made()

    def reborn(self) -> None:
        self.jobs.close()
        self.jobs = self._made()

    @property
    def part(self) -> LocalJob:
        return self.jobs.get(JOB)

    def start(self, epoch: int = 1, **given: Any) -> dict[int, int]:
        return self.part.start(start_plan(**given), epoch=epoch, limit_s=20)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [report for report in list(self.reports) if report["kind"] == kind]

    def _made(self) -> LocalJobs:
        return LocalJobs(
            node=NODE,
            runtime=self.runtime,
            memory_dir=self.folder / "memory",
            ssd_dir=self.folder / "ssd",
            jobs_dir=self.jobs_dir,
            report=lambda kind, body, job="", epoch=0: self.reports.append(
                {"kind": kind, "job": job, "epoch": epoch, **body}
            ),
        )


def container_plan(env: Mapping[str, str] | None = None) -> ContainerPlan:
    raw = {"image": "", "program": [str(PROGRAM)], "mode": "fork", "preload": [], "env": dict(env or {}), "workdir": ""}
    return payloads.container(Fields({**raw, "memory_bytes": 0, "cpus": 0, "shm_bytes": 0, "mounts": []}, "container"))


def start_plan(*, env: Mapping[str, str] | None = None, **given: Any) -> StartPlan:
    payload = {
        "container": dict(container_plan(env).raw),
        "slot": 0,
        "ranks": [{"rank": 0, "local_rank": 0}],
        "world_size": 1,
        "nodes": 1,
        "master_addr": "127.0.0.1",
        "master_port": 22499,
        "restore": None,
        "period_plan": [{"from_step": 0, "every_steps": 5}],
        "plan_version": 1,
        "lease_rule": "stop_when_stuck",
        "storage_dir": "",
    }
    return payloads.start({**payload, **given})
