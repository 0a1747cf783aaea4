"""Where do the contract tests run containers? On either runtime, through one small surface."""

import fcntl
import os
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.ports import LABEL_JOB, ContainerInfo, ContainerSpec, ContainerState, Mount
from reliability.runtimes.docker import DockerRuntime
from reliability.runtimes.process import ProcessRuntime
from tests.testbed.commands import wait_until

FOREVER = "import time\nwhile True: time.sleep(1)"


@dataclass
class Place:
    """A runtime under test, a folder that its containers see under the same path, and hands to hurt them."""

    runtime: DockerRuntime | ProcessRuntime
    image: str
    folder: Path
    run: Callable[[Sequence[str]], str]
    kill_main: Callable[[str], None]

    def spec(self, program: str = FOREVER, **changes: Any) -> ContainerSpec:
        """Return a container that runs a Python program; `FOLDER` in it is the shared folder."""
        python = "python3" if self.image else sys.executable
        code = program.replace("FOLDER", repr(str(self.folder)))
        given: dict[str, Any] = {
            "name": f"sk-{uuid.uuid4().hex[:8]}",
            "argv": [python, "-u", "-c", code],
            "image": self.image,
            "labels": {LABEL_JOB: "contract"},
            "mounts": [Mount(source=self.folder, target=str(self.folder))],
        }
        return ContainerSpec(**(given | changes))

    def await_file(self, name: str, *, holds: str = "") -> Path:
        """Wait for a file that a container leaves in the folder, and for at least as much in it as `holds`."""
        path = self.folder / name
        whole = len(holds)
        wait_until(
            lambda: path.exists() and path.stat().st_size >= whole, limit_s=60, what=f"the container writes {name}"
        )
        return path

    def await_exit(self, name: str) -> ContainerInfo:
        """Wait until a container has ended by itself; return what is known of it then."""
        wait_until(
            lambda: self.runtime.inspect(name).state is ContainerState.EXITED, limit_s=60, what=f"{name} ends by itself"
        )
        return self.runtime.inspect(name)

    def is_held(self, name: str) -> bool:
        """Whether a running process holds the lock on a file of the folder: the kernel frees it at its end."""
        with (self.folder / name).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False


def kill_process(runtime: ProcessRuntime) -> Callable[[str], None]:
    """Return what kills the main process of a container whose pid counts on this machine."""
    return lambda name: os.kill(runtime.inspect(name).pid, signal.SIGKILL)
