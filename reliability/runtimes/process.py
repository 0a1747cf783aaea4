"""How are containers run where there is no engine? As real child processes, and always named as what they are.

Each container is a shim (process_shim.py) with the main process below it. No isolation is claimed: mounts are not made
(the caller gives host paths, STEPKEEPER_DIR among them, in `env`), host names are not added, CPU is not limited, and
the memory limit is RLIMIT_DATA, so it holds for each process alone and ends in a MemoryError, never in an OOM kill.
Containers end with the process that started them, whichever of its threads did: a start belongs in the agent's
long-lived process and not in a pool child that comes and goes.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.errors import ContainerMissing, FenceUnconfirmed, InvalidInput, RuntimeFailure
from reliability.ports import ContainerInfo, ContainerSpec, ContainerState, RuntimeEvent
from reliability.runtimes import process_shim
from reliability.runtimes.process_events import EventStream
from reliability.runtimes.process_table import MARKER, ProcessKey, identify, marked, send, wait_end
from reliability.runtimes.records import Record, Records

START_LIMIT_S = 20.0
POLL_S = 0.01
LOG_WINDOW_BYTES = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
"""Room for a job and a node of 80 characters each, and within what a file name may have."""


class ProcessRuntime:
    """Runs containers as process trees of this machine; what it knows lies in `state_dir`."""

    kind = "process"

    def __init__(self, state_dir: Path, *, confirm_s: float = 5.0) -> None:
        self._records = Records(Path(state_dir))
        self._confirm_s = confirm_s
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()

    def ping(self) -> None:
        """Nothing stands between this runtime and the kernel, so it always answers."""

    def ensure_image(self, image: str) -> str:
        """Return '': programs come from this machine, whatever image the job names for other nodes."""
        del image
        return ""

    def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Start the process tree, or return the running one of that name."""
        with self._locked(spec.name):
            known = self._records.read(spec.name)
            if known and known.running:
                return self._info(known)
            if known:
                self._end(known, grace_s=0)
            self._records.prepare(spec.name)
            record = self._launch(spec)
            self._records.write(record)
        for stream in list(self._streams):
            stream.tell(record)
        return self._info(record)

    def stop(self, name: str, *, grace_s: float) -> None:
        """End the whole tree, escaped descendants included, and forget it."""
        with self._locked(name):
            record = self._records.read(name)
            if record:
                self._end(record, grace_s=grace_s)
            self._records.remove(name)

    def inspect(self, name: str) -> ContainerInfo:
        """Return what is known of it."""
        return self._info(self._existing(name))

    def list(self, labels: Mapping[str, str]) -> Sequence[ContainerInfo]:
        """Return all containers that carry these labels."""
        return [self._info(record) for record in self._records if carries(record.labels, labels)]

    def logs(self, name: str, *, tail: int) -> str:
        """Return the last lines of its output, of at most the last MiB."""
        self._existing(name)
        with self._records.log_of(name).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_WINDOW_BYTES))
            lines = log.read().decode(errors="replace").splitlines(keepends=True)
        return "".join(lines[-tail:]) if tail > 0 else ""

    def events(self, labels: Mapping[str, str]) -> Iterator[RuntimeEvent]:
        """Subscribe now; the iterator yields what happens from now on and ends after close()."""
        stream = EventStream(self._records, lambda found: carries(found, labels))
        self._streams.add(stream)
        return iter(stream)

    def close(self) -> None:
        """End all event streams. Containers go on."""
        for stream in list(self._streams):
            stream.close()

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """One caller at a time for each name, across threads and processes."""
        if not NAME.fullmatch(name):
            raise InvalidInput("name", f"{name!r} cannot name a container.", hint="Use letters, digits, '.', '_', '-'.")
        with (self._records.folder / f".{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _existing(self, name: str) -> Record:
        record = self._records.read(name)
        if record is None:
            raise ContainerMissing(f"There is no container {name}.")
        return record

    def _info(self, record: Record) -> ContainerInfo:
        running = record.running
        return ContainerInfo(
            name=record.name,
            state=ContainerState.RUNNING if running else ContainerState.EXITED,
            image_digest="",
            labels=record.labels,
            pid=record.main.pid if running else 0,
            exit_code=None if running else self._records.exit_code(record.name),
        )

    def _launch(self, spec: ContainerSpec) -> Record:
        """Start the shim and wait for its word that the main process runs."""
        instance = uuid.uuid4().hex
        process = subprocess.Popen(
            [sys.executable, "-E", "-S", "-B", process_shim.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        threading.Thread(target=process.wait, name=f"reap-{spec.name}", daemon=True).start()
        shim = identify(process.pid)
        said = converse(process, self._order(spec, instance))
        main = identify(said["pid"]) if "pid" in said else None
        if "error" in said or shim is None:
            self._records.remove(spec.name)
            raise RuntimeFailure(
                f"{spec.name}: {spec.argv[0]} could not be started ({said.get('error', 'its shim ended')}).",
                hint="Check the program, the working folder and the limits of the job on this node.",
            )
        return Record(
            name=spec.name,
            instance=instance,
            labels=dict(spec.labels),
            shim=shim,
            main=main or ProcessKey(said["pid"], "ended"),
        )

    def _order(self, spec: ContainerSpec, instance: str) -> dict[str, object]:
        return {
            "argv": list(spec.argv),
            "env": environment(spec, instance),
            "workdir": spec.workdir,
            "memory_bytes": spec.memory_bytes,
            "log": str(self._records.log_of(spec.name)),
            "exit": str(self._records.exit_of(spec.name)),
            "parent": os.getpid(),
        }

    def _end(self, record: Record, *, grace_s: float) -> None:
        """Ask, then kill through the shim, then kill what a killed shim may have left; confirm or say so."""
        if grace_s > 0:
            send(record.shim, signal.SIGTERM)
        if grace_s <= 0 or not wait_end(record.shim, grace_s):
            send(record.shim, signal.SIGUSR1)
            wait_end(record.shim, self._confirm_s)
        self._end_marked(record)

    def _end_marked(self, record: Record) -> None:
        deadline = time.monotonic() + self._confirm_s
        while True:
            left = marked(record.instance) + ([record.shim] if record.shim.alive else [])
            if not left:
                return
            if time.monotonic() > deadline:
                pids = ", ".join(str(key.pid) for key in left)
                raise FenceUnconfirmed(f"{record.name}: still running after a kill (process {pids}).")
            for key in left:
                if key != record.shim:
                    send(key, signal.SIGKILL)
            time.sleep(POLL_S)


def converse(process: "subprocess.Popen[bytes]", order: Mapping[str, object]) -> dict[str, Any]:
    """Give the shim its order and return its one answer: {"pid"} or {"error"}."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeFailure("The shim has no pipes.")
    with process.stdin, process.stdout:
        try:
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
        except BrokenPipeError:
            return {"error": "its shim ended at once"}
        ready, _, _ = select.select([process.stdout], [], [], START_LIMIT_S)
        line = process.stdout.readline() if ready else b""
    if not line:
        process.kill()
        return {"error": f"its shim did not answer within {START_LIMIT_S:g} s"}
    answer: dict[str, Any] = json.loads(line)
    return answer


def carries(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a container has these labels; '' stands for any value."""
    return all(key in found and value in ("", found[key]) for key, value in wanted.items())


def environment(spec: ContainerSpec, instance: str) -> dict[str, str]:
    """Return the environment of a container: the machine's without the agent's own settings, then the job's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("STEPKEEPER_")}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept | dict(spec.env) | {MARKER: instance, "STEPKEEPER_PARENT_DEATH": "1"}
