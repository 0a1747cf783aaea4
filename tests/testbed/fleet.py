"""How do tests get several real hosts, and break them? The hosts of one run, by name."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docker.errors import NotFound

from tests.testbed import runs, store
from tests.testbed.commands import TestbedError
from tests.testbed.fabric import FIRST_HOST
from tests.testbed.host import Host
from tests.testbed.images import Image
from tests.testbed.ranks import pid_of_rank

NAME_LIMIT = 12
BUILDER = "builder"
BUILDER_NUMBER = 250


class Fleet:
    """Hosts on one machine, joined by one network. All waits have a limit; close() leaves nothing behind."""

    def __init__(self) -> None:
        self._run = runs.claim()
        self._fabric = self._run.fabric
        self._fabric.make()
        self.hosts: dict[str, Host] = {}
        self._builder: Host | None = None
        self.folder = self._run.folder
        self.control_address = self._fabric.control_address
        self.storage_dir = self.folder / "storage"
        self.storage_dir.mkdir()
        self._names = self.folder / "hosts"
        self._name_hosts()

    def host(self, name: str) -> Host:
        """Return a host by name."""
        return self.hosts[name]

    def up(self, *names: str) -> list[Host]:
        """Switch hosts on, at once, making those that do not exist; returns when their engines answer."""
        for name in names:
            if name not in self.hosts:
                self.hosts[name] = self._make(name)
        self._name_hosts()
        wanted = [self.hosts[name] for name in names]
        each(wanted, Host.boot)
        return wanted

    boot = up

    def poweroff(self, name: str) -> None:
        """Power loss: everything of the host is gone, its disk stays."""
        self.hosts[name].poweroff()

    def sh(self, name: str, argv: Sequence[str], **popen: Any) -> "subprocess.Popen[Any]":
        """Start a program inside the host (`cwd` and other options as for Popen); it ends with the host."""
        return self.hosts[name].sh(argv, **popen)

    def run(self, name: str, argv: Sequence[str], *, limit_s: float = 30) -> str:
        """Run a program inside the host to its end; return its output, raise TestbedError when it fails."""
        process = self.sh(name, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise TestbedError(f"{' '.join(argv)} on {name}: not done after {limit_s:g} s") from error
        text = bytes(output).decode(errors="replace")
        if process.returncode:
            raise TestbedError(f"{' '.join(argv)} on {name}: exit code {process.returncode}\n{text}")
        return text

    def kill(self, name: str, container_name: str = "", *, rank: int | None = None, job: str = "") -> None:
        """SIGKILL of a container's main process, or of the process that is rank N."""
        host = self.hosts[name]
        if rank is not None:
            os.kill(pid_of_rank(host, rank, job), signal.SIGKILL)
        else:
            host.docker.api.kill(container_name, signal="SIGKILL")

    def kill_engine(self, name: str) -> None:
        """SIGKILL of the host's Docker Engine alone."""
        self.hosts[name].kill_engine()

    def cut(self, name: str) -> None:
        """Take the host's link down."""
        self._fabric.cut(name)

    def uncut(self, name: str) -> None:
        """Take the host's link up again."""
        self._fabric.uncut(name)

    def drop(self, name: str) -> None:
        """Lose all packets of the host silently; its link stays up."""
        self._fabric.drop(name)

    def undrop(self, name: str) -> None:
        """Lose no packets any more."""
        self._fabric.undrop(name)

    def slow(self, name: str, rate: str) -> None:
        """Limit the host's network to a rate, for example `100mbit`."""
        self._fabric.slow(name, rate)

    def unslow(self, name: str) -> None:
        """Remove the limit."""
        self._fabric.unslow(name)

    def freeze(self, name: str) -> None:
        """Stop all processes of the host where they stand."""
        self.hosts[name].group.freeze()

    def thaw(self, name: str) -> None:
        """Let them run on."""
        self.hosts[name].group.thaw()

    def load(self, image: Image, *names: str) -> None:
        """Bring an image to hosts, to all when none is named; nothing where it is already.

        Hosts adopt it from the store; where that cannot be, the builder's engine saves and theirs loads.
        """
        lacking = [host for name in names or self.hosts if not image.is_on(host := self.hosts[name])]
        if lacking:
            with store.locked() as folder:
                if store.holds(folder, image.reference):
                    each(lacking, lambda host: host.adopt(folder, image.reference))
        left = [host for host in lacking if not image.is_on(host)]
        if left:
            with self.builder() as builder:
                each(left, lambda host: image.copy(builder, host))

    @contextmanager
    def builder(self) -> Iterator[Host]:
        """Switch on the host that builds images, apart from the others; its engine's data folder is the store."""
        with store.locked() as folder:
            if self._builder is None:
                self._builder = self._make(BUILDER, engine_dir=folder)
            self._builder.boot()
            try:
                yield self._builder
            finally:
                self._builder.poweroff()

    def reset(self) -> None:
        """Bring all hosts back to a clean running state: no faults, no programs, no containers, empty folders."""
        each(self.hosts.values(), self._reset)
        empty(self.storage_dir)

    def remove(self, name: str) -> None:
        """Switch a host off for good and delete its disk."""
        host = self.hosts.pop(name)
        host.poweroff()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def close(self) -> None:
        """Remove all hosts and everything of this run."""
        try:
            each(self.hosts.values(), Host.poweroff)
        finally:
            runs.release(self._run)

    def _make(self, name: str, engine_dir: Path | None = None) -> Host:
        if not name.isalnum() or len(name) > NAME_LIMIT:
            raise TestbedError(f"{name!r} is no name for a host: at most {NAME_LIMIT} letters and digits")
        taken = {host.address for host in self.hosts.values()}
        numbers = [BUILDER_NUMBER] if name == BUILDER else range(FIRST_HOST, BUILDER_NUMBER)
        number = next(n for n in numbers if self._fabric.address(n) not in taken)
        return Host(
            name,
            number,
            folder=self.folder / name,
            fabric=self._fabric,
            group=self._run.group(name),
            names=self._names,
            engine_dir=engine_dir,
        )

    def _name_hosts(self) -> None:
        """Write the file that is /etc/hosts on every host, in place, so that running hosts see it too."""
        lines = ["127.0.0.1 localhost", f"{self.control_address} control"]
        self._names.write_text("\n".join([*lines, *(f"{h.address} {h.name}" for h in self.hosts.values()), ""]))

    def _reset(self, host: Host) -> None:
        if host.is_on:
            host.group.thaw()
            host.kill_processes()
            self.uncut(host.name)
            self.unslow(host.name)
            self.undrop(host.name)
        host.boot()
        if not host.engine_runs:
            host.start_engine()
        for container in host.docker.api.containers(all=True):
            try:
                host.docker.api.remove_container(container["Id"], force=True, v=True)
            except NotFound:
                continue
        for folder in (host.outside(host.memory_dir), host.ssd_dir, host.data_dir):
            empty(folder)


def each(hosts: Iterable[Host], action: Callable[[Host], object]) -> None:
    """Do something with several hosts at the same time; the first error is raised after all are done."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        for done in [pool.submit(action, host) for host in hosts]:
            done.result()


def empty(folder: Path) -> None:
    """Delete what is in a folder, not the folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
