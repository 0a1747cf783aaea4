"""What the demo is made of: a folder, five local nodes, a person who may sign in, and a guarded job."""

import hashlib
import os
import secrets
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError

from reliability.domain.health import NodeHealth
from reliability.models import Job, Node
from reliability.services import jobs
from reliability.supervisor.addresses import free_port
from reliability.supervisor.processes import ChildSpec
from reliability.supervisor.status import LOCK_NAME, STATUS_NAME

ADDRESS = "127.0.0.1"
MARKER = "this-is-a-demo"
LOG_NAME = "demo.log"
USER = "admin"
STEPS = 36_000
"""An hour, at the pace below: long enough to look around."""
STEP_SLEEP_S = 0.1
FIRST_MASTER_PORT = 29500
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (the memory tier is meant to be there)


@dataclass(frozen=True)
class DemoNode:
    """A node that the demo makes."""

    name: str
    role: str
    tier: int


NODES = (
    DemoNode("node-1", "training", 1),
    DemoNode("node-2", "training", 1),
    DemoNode("node-3", "training", 1),
    DemoNode("standby-1", "standby", 1),
    DemoNode("standby-2", "standby", 2),
)


def memory_folder(data: Path) -> Path:
    """Return where the nodes keep their memory tier: shared memory, or the data folder where there is none.

    Each data folder has its own, so that two demos on one machine do not meet.
    """
    if os.access(SHARED_MEMORY, os.W_OK):
        own = hashlib.sha256(str(data).encode()).hexdigest()[:8]
        return SHARED_MEMORY / f"stepkeeper-demo-{os.getuid()}-{own}"
    return data / "memory"


def begin_afresh(data: Path) -> bool:
    """Empty the demo's folder, keeping its secrets; return whether there was an earlier demo.

    Raises CommandError when it is not a demo's.
    """
    kept = {LOCK_NAME, STATUS_NAME, MARKER, LOG_NAME}
    found = [entry for entry in data.iterdir() if entry.name not in kept and entry.suffix != ".secret"]
    if found and not (data / MARKER).exists():
        raise CommandError(
            f"{data} holds an installation that is not a demo (there is {found[0].name}). "
            "Name an empty folder in STEPKEEPER_DATA_DIR, or leave it unset."
        )
    (data / MARKER).touch()
    for entry in found:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return bool(found)


def password(data: Path) -> str:
    """Return the password of the demo's user, made once a folder."""
    path = data / "admin_password.secret"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(9))
    return path.read_text()


def ensure_user(data: Path) -> None:
    """Create the person who may do everything."""
    if not User.objects.filter(username=USER).exists():
        User.objects.create_superuser(USER, password=password(data))


def agent_specs(*, project: Path, data: Path, server: str, join_token: str) -> Iterator[ChildSpec]:
    """Return the agents of the demo's nodes. Each has folders of its own, as if it were a machine of its own."""
    token_file = data / "join_token_for_agents.secret"
    token_file.touch(mode=0o600)
    token_file.write_text(join_token)
    for node in NODES:
        home = data / "nodes" / node.name
        options = {
            "--server": server,
            "--name": node.name,
            "--address": ADDRESS,
            "--runtime": "process",
            "--data-dir": str(home / "agent"),
            "--memory-dir": str(memory_folder(data) / node.name),
            "--ssd-dir": str(home / "ssd"),
            "--join-token-file": str(token_file),
            "--role": node.role,
            "--tier": str(node.tier),
        }
        words = (word for option in options.items() for word in option)
        yield ChildSpec(name=node.name, argv=(sys.executable, "-m", "reliability.agent", *words), cwd=project)


def nodes_ready() -> bool:
    """Return whether every node has joined and is well."""
    return Node.objects.filter(health=NodeHealth.HEALTHY).count() == len(NODES)


def job_spec(project: Path) -> dict[str, Any]:
    """Return the example as a user would submit it, for a machine without a container engine."""
    folder = project / "examples" / "numpy_lm"
    spec = tomllib.loads((folder / "job.toml").read_text())
    program = [str(folder / "train.py"), "--steps", str(STEPS), "--step-sleep", str(STEP_SLEEP_S)]
    port = free_port(ADDRESS, FIRST_MASTER_PORT)
    return spec | {
        "name": "demo",
        "image": "",
        "runtime": "process",
        "program": program,
        "workdir": str(folder),
        "storage_dir": str(settings.STORAGE_DIR),
        "master_port": port,
    }


def start_job(project: Path) -> Job:
    """Submit and start the demo's job."""
    job = jobs.submit(job_spec(project), by=USER)
    jobs.start(job, by=USER)
    return job
