"""Which processes are these? Facts of /proc, safe against a process id that was given to somebody else."""

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MARKER = "STEPKEEPER_CONTAINER"


@dataclass(frozen=True)
class ProcessKey:
    """A process for all time: its id with the boot and the clock tick at which it began."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.pid > 0 and identify(self.pid) == self


def identify(pid: int) -> ProcessKey | None:
    """Return the key of a running process, None when there is none or only its zombie is left."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    if fields[0] in {"Z", "X"}:
        return None
    return ProcessKey(pid, f"{boot}:{fields[19]}")


def open_pidfd(key: ProcessKey) -> int | None:
    """Return a descriptor that becomes readable at the end of this process; None when it has ended."""
    try:
        descriptor = os.pidfd_open(key.pid)
    except ProcessLookupError:
        return None
    if key.alive:
        return descriptor
    os.close(descriptor)
    return None


def wait_end(key: ProcessKey, limit_s: float) -> bool:
    """Wait until this process has ended; return whether it has within the limit."""
    descriptor = open_pidfd(key)
    if descriptor is None:
        return True
    try:
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        return bool(waiter.poll(limit_s * 1000))
    finally:
        os.close(descriptor)


def send(key: ProcessKey, number: signal.Signals) -> None:
    """Send a signal to this process and no other; nothing when it has ended."""
    descriptor = open_pidfd(key)
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def marked(instance: str) -> list[ProcessKey]:
    """Return the running processes whose environment names this container instance."""
    wanted = f"{MARKER}={instance}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            key = identify(int(entry.name))
            found += [key] if key else []
    return found
