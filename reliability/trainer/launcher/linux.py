"""The few things of Linux that the standard library has no call for, and the process tree as /proc shows it."""

import ctypes
import os
import signal
from collections import defaultdict
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000
_IN_CLOSE_WRITE = 0x8
_IN_MOVED_TO = 0x80

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end at once when the parent is gone already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def watch_parent() -> int | None:
    """Return a descriptor that becomes readable when the parent ends; None for a process without a parent.

    A death signal would do for ranks, whose parent has one thread. For the launcher it would not: the kernel sends it
    when the *thread* that started the launcher ends, and that may happen while its process goes on.
    """
    parent = os.getppid()
    return os.pidfd_open(parent) if parent else None


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, as process 1 of a container is anyway."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch_folder(path: Path) -> int | None:
    """Return a descriptor that becomes readable when a file in `path` is completed or renamed into it.

    None where the kernel gives no watch (their number per user is limited).
    """
    fd: int = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
    if fd < 0:
        return None
    if _libc.inotify_add_watch(fd, os.fsencode(path), _IN_CLOSE_WRITE | _IN_MOVED_TO) < 0:
        os.close(fd)
        return None
    return fd


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, also those that left their session; zombies are left out."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            _note_parent(entry, children)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _note_parent(entry: Path, children: dict[int, list[int]]) -> None:
    try:
        fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return  # it ended meanwhile
    state, parent = fields[0], int(fields[1])
    if state not in "ZX":
        children[parent].append(int(entry.name))
