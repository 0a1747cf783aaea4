"""Which container does a job's slot run in? One launcher for each job and node, kept over attempts."""

import os
import sys
from pathlib import Path

import reliability
from reliability.agent.payloads import ContainerPlan
from reliability.agent.program_folder import INSIDE as PROGRAMS_INSIDE
from reliability.errors import ContainerMissing, RuntimeFailure
from reliability.ports import (
    LABEL_EPOCH,
    LABEL_JOB,
    LABEL_SLOT,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Mount,
    Runtime,
)

WARM = "warm"
INSIDE = "/stepkeeper"
DOCKER = "docker"
_CHECKOUT = str(Path(reliability.__file__).resolve().parents[1])


def name_of(job: str, node: str) -> str:
    """Return the container's name (docs/protocol.md section 4)."""
    return f"sk-{job}-{node}"


def folder_inside(runtime: str, folder: Path) -> str:
    """Return where a rank sees the job's folder: the process runtime has no mounts and uses the host's path."""
    return INSIDE if runtime == DOCKER else str(folder)


def spec_of(
    plan: ContainerPlan,
    *,
    job: str,
    node: str,
    runtime: str,
    folder: Path,
    slot: int | None,
    epoch: int,
    programs: Path,
) -> ContainerSpec:
    """Return what the runtime has to start."""
    in_docker = runtime == DOCKER
    env = {
        **plan.env,
        "STEPKEEPER_DIR": folder_inside(runtime, folder),
        "STEPKEEPER_JOB": job,
        "STEPKEEPER_PRELOAD": ",".join(plan.preload),
    }
    if not in_docker:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (plan.env.get("PYTHONPATH", ""), _CHECKOUT)))
    return ContainerSpec(
        name=name_of(job, node),
        argv=_launcher(in_docker=in_docker),
        image=plan.image if in_docker else "",
        env=env,
        labels={
            LABEL_JOB: job,
            LABEL_SLOT: WARM if slot is None else str(slot),
            LABEL_EPOCH: str(epoch),
        },
        mounts=_mounts(plan, folder, programs) if in_docker else (),
        workdir=plan.workdir,
        shm_bytes=plan.shm_bytes,
        memory_bytes=plan.memory_bytes,
        cpus=plan.cpus,
    )


def _mounts(plan: ContainerPlan, folder: Path, programs: Path) -> tuple[Mount, ...]:
    own = [Mount(source=folder, target=INSIDE)]
    if plan.snapshot_folder is not None:
        own.append(Mount(source=programs, target=PROGRAMS_INSIDE))
    return (*own, *plan.mounts)


class JobContainer:
    """The container of one job on this node. Who changes it holds the job's order lock.

    `up` is what was last seen of it, `pid` its main process then; `ordered_end` tells whether its end, when it comes,
    was asked for.
    """

    def __init__(self, runtime: Runtime, *, job: str, node: str, folder: Path, programs: Path) -> None:
        self.name = name_of(job, node)
        self.up = False
        self.pid = 0
        self.ordered_end = False
        self._runtime = runtime
        self._job = job
        self._node = node
        self._folder = folder
        self._programs = programs

    @property
    def folder_inside(self) -> str:
        """Where a rank sees the job's folder."""
        return folder_inside(self._runtime.kind, self._folder)

    @property
    def programs_inside(self) -> str:
        """Where a rank sees the folders of its program's snapshots."""
        return PROGRAMS_INSIDE if self._runtime.kind == DOCKER else str(self._programs)

    def inspect(self) -> ContainerInfo | None:
        """Return what the runtime knows of it, None when there is none."""
        try:
            return self._runtime.inspect(self.name)
        except ContainerMissing:
            return None

    def running(self) -> ContainerInfo | None:
        """Return what the runtime knows of it when it runs, None otherwise."""
        info = self.inspect()
        if info is None or info.state is not ContainerState.RUNNING:
            return None
        self.pid = info.pid
        return info

    def ensure_image(self, image: str) -> str:
        """Return the image's digest, pulling it when absent."""
        return self._runtime.ensure_image(image)

    def ensure(self, plan: ContainerPlan, *, epoch: int, slot: int | None) -> None:
        """Have it run."""
        spec = spec_of(
            plan,
            job=self._job,
            node=self._node,
            runtime=self._runtime.kind,
            folder=self._folder,
            slot=slot,
            epoch=epoch,
            programs=self._programs,
        )
        self.pid = self._runtime.start(spec).pid

    def end(self) -> None:
        """End and remove it on order."""
        self.ordered_end = True
        self._runtime.stop(self.name, grace_s=0)
        self.up = False

    def kill(self) -> None:
        """End it at once as a power loss would (drill): the end counts as not ordered."""
        self._runtime.stop(self.name, grace_s=0)

    def last_words(self) -> str:
        """Return a sentence with the end of its output, '' when there is none."""
        try:
            text = self._runtime.logs(self.name, tail=5).strip()
        except RuntimeFailure:
            return ""
        return f" Its last output: {text[-800:]}" if text else ""


def _launcher(*, in_docker: bool) -> list[str]:
    """Without an image the launcher is the one that came with this agent: an installed client may be of another
    version, and both sides of the control files must be of one."""
    if in_docker:
        return ["python3", "-m", "stepkeeper.launcher"]
    return [sys.executable, "-m", "reliability.trainer.launcher"]
