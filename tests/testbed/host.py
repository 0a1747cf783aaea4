"""What is one host? A pid, mount, uts, ipc and network namespace with an init of its own and its own Docker Engine.

One SIGKILL of its init is a power loss: engine, containers, agents, mounts and tmpfs are gone at once.
"""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docker

from tests.testbed import store
from tests.testbed.cgroups import HostGroup
from tests.testbed.commands import TestbedError, wait_until
from tests.testbed.fabric import Fabric

CLONE_NEWPID = 0x20000000
LIBC = ctypes.CDLL(None, use_errno=True)
BOOT_LIMIT_S = 30
INIT = """
hostname "$1"
mount --bind "$3" /etc/hosts
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o size=4g,mode=1777 tmpfs "$2/memory"
: > "$2/init.ready"
trap : TERM
while :; do sleep 3600 & wait $!; done
"""


class Host:
    """One host of the fleet. Paths are the same inside and outside, but memory_dir has its content only inside."""

    def __init__(
        self,
        name: str,
        number: int,
        *,
        folder: Path,
        fabric: Fabric,
        group: HostGroup,
        names: Path,
        engine_dir: Path | None = None,
    ) -> None:
        self.name = name
        self.address = fabric.address(number)
        self.group = group
        self._number = number
        self._folder = folder
        self._fabric = fabric
        self._names = names
        self._unshare: subprocess.Popen[bytes] | None = None
        self._engine: subprocess.Popen[bytes] | None = None
        self._docker: docker.DockerClient | None = None
        self._processes: list[subprocess.Popen[Any]] = []
        self._lock = threading.RLock()
        self.init = 0
        self.memory_dir = folder / "memory"
        self.ssd_dir = folder / "ssd"
        self.data_dir = folder / "data"
        self.engine_dir = engine_dir or folder / "engine"
        for path in (self.memory_dir, self.ssd_dir, self.data_dir, self.engine_dir):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def socket(self) -> Path:
        """The engine's socket, at the same path inside and outside of the host."""
        return self._folder / "docker.sock"

    @property
    def engine_url(self) -> str:
        """The engine's address."""
        return f"unix://{self.socket}"

    @property
    def docker(self) -> docker.DockerClient:
        """A client of the host's engine."""
        with self._lock:
            if self._docker is None:
                self._docker = docker.DockerClient(base_url=self.engine_url, timeout=120)
            return self._docker

    @property
    def is_on(self) -> bool:
        """Whether the host has power."""
        return self._unshare is not None and self._unshare.poll() is None

    @property
    def engine_runs(self) -> bool:
        """Whether its engine runs."""
        return self._engine is not None and self._engine.poll() is None

    @property
    def engine_log(self) -> str:
        """What the engine wrote."""
        path = self._folder / "dockerd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def outside(self, path: Path) -> Path:
        """Return the path by which this machine sees a path of the host (also below memory_dir) while it is on."""
        return Path(f"/proc/{self.init}/root") / path.relative_to("/")

    def boot(self) -> None:
        """Switch the host on and wait for its engine; nothing when it is on already."""
        with self._lock:
            if self.is_on:
                return
            self._start_init()
            self.start_engine()

    def poweroff(self) -> None:
        """Take the power away: silence on the network, then one SIGKILL of init; returns when nothing is left."""
        with self._lock:
            if self._unshare is None:
                return
            self._fabric.plug_out(self.name)
            if self._unshare.poll() is None:
                os.kill(self.init, signal.SIGKILL)
                self.group.thaw()
            self._forget_engine()
            for process in [*self._processes, *([self._engine] if self._engine else [])]:
                process.wait(timeout=10)  # init's end is complete only when every process of the host was waited for
            self._processes.clear()
            self._engine = None
            self._unshare.wait(timeout=20)
            self._unshare = None
            self.group.remove()

    def sh(self, argv: Sequence[str], *, cwd: str = "/", **popen: Any) -> "subprocess.Popen[Any]":
        """Start a program inside the host; it ends with the host. The handle is the program itself."""
        process = self._spawn(argv, cwd, popen)
        self._processes.append(process)
        return process

    def start_engine(self) -> None:
        """Start the Docker Engine and wait until it answers."""
        with self._lock, (self._folder / "dockerd.log").open("ab") as log:
            self.socket.unlink(missing_ok=True)
            argv = [
                "dockerd", "--data-root", str(self.engine_dir), "--exec-root", "/run/docker",
                "--pidfile", "/run/docker.pid", "--host", "unix:///run/docker.sock", "--host", self.engine_url,
                "--cgroup-parent", self.group.containers, "--exec-opt", "native.cgroupdriver=cgroupfs",
                "--bridge", "none", "--iptables=false", "--insecure-registry", self._fabric.subnet,
            ]  # fmt: skip
            self._engine = self._spawn(argv, "/", {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log})
        wait_until(self._engine_answers, limit_s=BOOT_LIMIT_S, what=f"engine of host {self.name} answers")

    def kill_engine(self) -> None:
        """Kill the engine alone; its containers run on without it."""
        with self._lock:
            if self._engine is not None:
                self._engine.kill()
                self._engine.wait(timeout=10)
            self._forget_engine()
        wait_until(
            lambda: not self._runs("containerd"), limit_s=10, what="containerd ends with the engine that was killed"
        )

    def adopt(self, store_folder: Path, reference: str) -> None:
        """Take over an image of the store, unless containers depend on the engine: it is started anew for it."""
        if self.docker.api.containers(all=True):
            return
        with self._lock:
            self.kill_engine()
            store.adopt(store_folder, reference, self.engine_dir)
            self.start_engine()

    def kill_processes(self) -> None:
        """Kill what was started by sh() and still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=10)
        self._processes.clear()

    def _runs(self, program: str) -> bool:
        return any(_program(pid) == program for pid in self.group.pids() if pid > 0)

    def _engine_answers(self) -> bool:
        if not self.engine_runs:
            raise TestbedError(f"the engine of host {self.name} ended:\n{self.engine_log[-2000:]}")
        try:
            return bool(self.docker.ping())
        except Exception:
            self._forget_engine()
            return False

    def _forget_engine(self) -> None:
        if self._docker is not None:
            self._docker.close()
            self._docker = None

    def _start_init(self) -> None:
        namespace = self._fabric.plug_in(self.name, self._number)
        self.group.make()
        ready = self._folder / "init.ready"
        ready.unlink(missing_ok=True)
        with (self._folder / "init.log").open("ab") as log:
            self._unshare = subprocess.Popen(
                ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(self.group.join_file),
                 "nsenter", f"--net={namespace}", "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork",
                 "--kill-child", "--mount-proc",
                 "bash", "-euc", INIT, "init", self.name, str(self._folder), str(self._names)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            )  # fmt: skip
        wait_until(ready.exists, limit_s=BOOT_LIMIT_S, what=f"init of host {self.name} is ready")
        self.init = child_of(self._unshare.pid)

    def _spawn(self, argv: Sequence[str], cwd: str, popen: dict[str, Any]) -> "subprocess.Popen[Any]":
        if not self.is_on:
            raise TestbedError(f"host {self.name} is off")
        entered = [
            "sh", "-c", 'echo 0 > "$0" && exec "$@"', str(self.group.join_file),
            "nsenter", "-t", str(self.init), "-m", "-u", "-i", "-n", "--",
            "sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv,
        ]  # fmt: skip
        return popen_in_pid_namespace(self.init, entered, {"start_new_session": True, **popen})


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                return int(entry.name)
    raise TestbedError(f"process {pid} has no child")


def popen_in_pid_namespace(init: int, argv: Sequence[str], popen: dict[str, Any]) -> "subprocess.Popen[Any]":
    """Start a child of this process inside another pid namespace.

    The namespace that children are born into belongs to the thread, so a thread of its own asks for it and forks: the
    child is ours to signal and to wait for, which it would not be behind `nsenter --pid`.
    """
    made: list[subprocess.Popen[Any]] = []
    failed: list[BaseException] = []

    def enter() -> None:
        try:
            descriptor = os.open(f"/proc/{init}/ns/pid", os.O_RDONLY)
            try:
                if LIBC.setns(descriptor, CLONE_NEWPID):
                    raise OSError(ctypes.get_errno(), "cannot enter the host's processes")
            finally:
                os.close(descriptor)
            made.append(subprocess.Popen(argv, **popen))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise TestbedError(f"cannot start {argv[-1]}: {failed[0]}") from failed[0]
    return made[0]
