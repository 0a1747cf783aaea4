"""Whose is what on this machine? Each run claims a number; what a dead run left behind is found by it and removed.

`python -m tests.testbed.runs NUMBER OWNER` is the warden of a run: it waits for the end of the owner, however it ends,
and cleans up. Deleting many files takes seconds, so disks are only renamed at first; the warden deletes them later.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.cgroups import HIERARCHY, HostGroup
from tests.testbed.commands import TestbedError, wait_until
from tests.testbed.fabric import Fabric

CLAIMS = Path("/run/stepkeeper-testbed")
DISK = Path(os.environ.get("STEPKEEPER_TESTBED_DIR", "/var/tmp"))
TRASH = "stepkeeper-testbed-trash-"
NUMBERS = range(1, 200)
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """One run of the test-bed on this machine."""

    number: int

    @property
    def folder(self) -> Path:
        """Everything of the run on disk: data of engines and hosts."""
        return DISK / f"stepkeeper-testbed-{self.number}"

    @property
    def fabric(self) -> Fabric:
        """The network of the run."""
        return Fabric(self.number)

    def group(self, host: str) -> HostGroup:
        """The control group of one host."""
        return HostGroup(f"{self.fabric.prefix}-{host}")

    def groups(self) -> list[HostGroup]:
        """The control groups of all its hosts."""
        return [HostGroup(path.name) for path in HIERARCHY.glob(f"{self.fabric.prefix}-*")]


def claim() -> Run:
    """Take a free number for this process, removing what dead runs left; a warden cleans up when this process dies."""
    with _locked():
        for run in _claimed():
            if not _owner_alive(run):
                _remove(run)
        taken = {run.number for run in _claimed()}
        number = next((number for number in NUMBERS if number not in taken), None)
        if number is None:
            raise TestbedError("all numbers of the test-bed are taken by running tests")
        run = Run(number)
        (CLAIMS / str(number)).write_text(json.dumps({"pid": os.getpid(), "began": _began(os.getpid())}))
    run.folder.mkdir(parents=True)
    _start_warden(run)
    return run


def release(run: Run) -> None:
    """Remove everything of a run; safe to repeat."""
    with _locked():
        _remove(run)


def _remove(run: Run) -> None:
    groups = run.groups()
    for group in groups:
        _kill(group)
    run.fabric.remove()
    for group in groups:
        group.remove()
    if run.folder.exists():
        run.folder.rename(tempfile.mkdtemp(prefix=TRASH, dir=DISK))
    (CLAIMS / str(run.number)).unlink(missing_ok=True)


def _kill(group: HostGroup) -> None:
    """Kill all processes of a host, thawing it after the first kill so that the kill can take effect."""

    def gone() -> bool:
        left = [pid for pid in group.pids() if pid > 0]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        group.thaw()
        for container in (group.path / "containers").glob("*/"):
            group.thaw(str(container.relative_to(group.path)))
        return not left

    wait_until(gone, limit_s=20, what=f"end of all processes of {group.name}")


@contextmanager
def _locked() -> Iterator[None]:
    CLAIMS.mkdir(parents=True, exist_ok=True)
    with (CLAIMS / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _claimed() -> list[Run]:
    return [Run(int(path.name)) for path in CLAIMS.iterdir() if path.name.isdigit()]


def _owner_alive(run: Run) -> bool:
    try:
        owner = json.loads((CLAIMS / str(run.number)).read_text())
    except (OSError, ValueError):
        return False
    return bool(owner["began"]) and _began(int(owner["pid"])) == owner["began"]


def _began(pid: int) -> str:
    """Return what tells this process from a later one with the same id, '' when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"


def _start_warden(run: Run) -> None:
    """Start the warden apart from this process, so that nothing here has to wait for it."""
    command = '"$0" -m tests.testbed.runs "$1" "$2" >/dev/null 2>&1 </dev/null &'
    subprocess.run(
        ["setsid", "sh", "-c", command, sys.executable, str(run.number), str(os.getpid())],
        cwd=REPOSITORY, check=True, timeout=10,
    )  # fmt: skip


def _watch(run: Run, owner: int) -> None:
    """Wait for the end of the owner, then remove the run unless it did so itself."""
    try:
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:
        descriptor = None
    if descriptor is not None and _owner_alive(run):
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        waiter.poll()
    with _locked():
        if (CLAIMS / str(run.number)).exists() and not _owner_alive(run):
            _remove(run)
    for folder in DISK.glob(f"{TRASH}*"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(Run(int(sys.argv[1])), int(sys.argv[2]))
