"""Which processes of this machine belong to a container, and how are they ended for certain?

A container's processes are the descendants of its main process, the launcher, in whatever process group or session
they hide: the launcher adopts its orphans. Numbers are those of the agent's own process namespace. What cannot be seen
or signalled from here counts as not ended, never as gone.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from reliability.agent import freezer

_PROC = Path("/proc")
_PAUSE_S = 0.002
_EMPTY_LOOKS = 2


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


def end_below(pid: int, *, grace_s: float, limit_s: float) -> bool:
    """End every descendant of a process, but not itself; return whether it is certain that none is left.

    With a grace they are asked by SIGTERM first. False also when they may not be signalled or cannot be seen: then
    only the container as a whole can be ended.
    """
    if not _seen(pid):
        return False
    try:
        if grace_s > 0 and _signal_until_gone(pid, signal.SIGTERM, grace_s, once=True):
            return True
        return _signal_until_gone(pid, signal.SIGKILL, limit_s)
    except PermissionError:
        return False


def _signal_until_gone(pid: int, number: signal.Signals, limit_s: float, *, once: bool = False) -> bool:
    """The list of children may miss one while its parent or sibling ends: only two empty looks in a row count."""
    end = time.monotonic() + limit_s
    asked: set[int] = set()
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS:
        left = below(pid)
        empty_looks = 0 if left else empty_looks + 1
        for child in left - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
                if number is signal.SIGKILL:
                    freezer.thaw(child)  # a frozen process dies of it then
        if left:
            asked |= left if once else set()
            if time.monotonic() > end:
                return False
            time.sleep(_PAUSE_S)
    return True


def _seen(pid: int) -> bool:
    """Whether a live process and its children can be seen: an unreadable list looks like an empty one."""
    try:
        (_PROC / str(pid) / "task" / str(pid) / "children").read_text()
    except OSError:
        return False
    return alive(pid)


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
