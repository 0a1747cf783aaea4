"""Which container does a job's slot run in? One launcher for each job and node, kept over attempts."""

import importlib.util
import os
import sys
from pathlib import Path

import reliability
from reliability.agent.payloads import ContainerPlan
from reliability.ports import LABEL_EPOCH, LABEL_JOB, LABEL_SLOT, ContainerSpec, Mount

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
    plan: ContainerPlan, *, job: str, node: str, runtime: str, folder: Path, slot: int | None, epoch: int
) -> ContainerSpec:
    """Return what the runtime has to start."""
    in_docker = runtime == DOCKER
    env = {
        **plan.env,
        "STEPKEEPER_DIR": folder_inside(runtime, folder),
        "STEPKEEPER_JOB": job,
        "STEPKEEPER_MODE": plan.mode,
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
        mounts=(Mount(source=folder, target=INSIDE), *plan.mounts) if in_docker else (),
        workdir=plan.workdir,
        shm_bytes=plan.shm_bytes,
        memory_bytes=plan.memory_bytes,
        cpus=plan.cpus,
    )


def _launcher(*, in_docker: bool) -> list[str]:
    if in_docker:
        return ["python3", "-m", "stepkeeper.launcher"]
    installed = importlib.util.find_spec("stepkeeper") is not None
    return [sys.executable, "-m", "stepkeeper.launcher" if installed else "reliability.trainer.launcher"]
