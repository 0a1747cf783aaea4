"""Is a process frozen by its control group, and how is it let go? Both versions of control groups.

With version 1 not even a kill reaches a frozen process: it dies of it when it is thawed.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def frozen(pid: int) -> bool:
    """Return whether a process lies in a control group that is frozen, itself or above it."""
    return any(_holds(file, word) for file, word, _ in _groups(pid))


def thaw(pid: int) -> None:
    """Thaw the control group of a process, where this may be done; one that is frozen from above stays so."""
    for file, word, switch in _groups(pid):
        if _holds(file, word):
            with contextlib.suppress(OSError):
                (file.parent / switch[0]).write_text(switch[1])


def _groups(pid: int) -> Iterator[tuple[Path, str, tuple[str, str]]]:
    """Yield the file that tells, the word that says frozen, and what is written where to thaw."""
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = path.lstrip("/")
        if controllers == "freezer":
            yield _CGROUPS / "freezer" / own / "freezer.state", "FROZEN", ("freezer.state", "THAWED")
        elif not controllers:
            for root in (_CGROUPS, _CGROUPS / "unified"):
                yield root / own / "cgroup.events", "frozen 1", ("cgroup.freeze", "0")


def _holds(file: Path, word: str) -> bool:
    try:
        return word in file.read_text()
    except OSError:
        return False
