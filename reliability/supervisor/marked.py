"""Which processes descend from a supervisor, whatever group, session or parent they have now?"""

import os
import signal
import time
from pathlib import Path

from reliability.supervisor.processes import MARKER


def _carries(pid: int, needle: bytes) -> bool:
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def marked(instance: str) -> list[int]:
    """Return the process ids that carry the marker of this supervisor, but not this process."""
    needle = f"{MARKER}={instance}".encode()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if pid != os.getpid() and _carries(pid, needle)]


def _kill(pid: int, needle: bytes) -> None:
    """Kill exactly that process: through a handle, so that a number given anew meanwhile is not hit."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _carries(pid, needle):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(handle)


def kill_marked(instance: str, *, limit_s: float) -> list[int]:
    """Kill them until none is left; returns those that are still there after the limit."""
    deadline = time.monotonic() + limit_s
    while (left := marked(instance)) and time.monotonic() < deadline:
        for pid in left:
            _kill(pid, f"{MARKER}={instance}".encode())
        time.sleep(0.02)
    return left
