"""Which processes of this machine belong to a container, and how are they ended for certain?

A container's processes are the descendants of its main process, the launcher, in whatever process group or session
they hide: the launcher adopts its orphans. Numbers are those of the agent's own process namespace.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")
_PAUSE_S = 0.002


def below(pid: int) -> set[int]:
    """Return all live descendants of a process; what has ended and only waits to be collected does not count."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        fresh = _children(waiting.pop()) - found
        found |= fresh
        waiting += fresh
    return {child for child in found if alive(child)}


def alive(pid: int) -> bool:
    """Return whether a process runs, stopped ones included."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return after_name.split()[0] not in {"Z", "X"}


def kill_below(pid: int, limit_s: float) -> bool:
    """Kill every descendant of a process, but not itself, until none is left; return whether none is."""
    end = time.monotonic() + limit_s
    while left := below(pid):
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_S)
    return True


def outside_number(main_pid: int, inner_pid: int) -> int | None:
    """Return our number of the process that is `inner_pid` in the namespace of a container's main process.

    None when there is no such process, or when this machine's processes cannot be seen from here.
    """
    for pid in (main_pid, *below(main_pid)):
        if _inner_number(pid) == inner_pid:
            return pid
    return None


def _inner_number(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return -1


def _children(pid: int) -> set[int]:
    children: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                children |= {int(child) for child in (thread / "children").read_text().split()}
    return children
