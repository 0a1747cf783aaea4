"""Is the machine quiet enough for a figure to mean something? What all other processes use of the processors."""

import os
import time
from pathlib import Path

BUSY_CORES = 0.35
"""A sample counts as disturbed when others used more than this many cores while it was taken."""
KERNEL_THREADS = 2
"""The process that all threads of the kernel are children of."""


def _spent() -> float:
    """Return the seconds of all processors that were not idle, those taken by the hypervisor among them."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Tells how many cores others used since it was made, the bench's own processes and the kernel's threads left out.

    The kernel's threads write and read for those who asked, here mostly for the contenders; what the hypervisor took
    away counts as used by others.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._began, self._own = time.perf_counter(), own_s(root)
        self._all = _spent()

    def others(self) -> float:
        """Return the cores that others used on average."""
        wall = max(time.perf_counter() - self._began, 1e-3)
        return max(_spent() - self._all - (own_s(self._root) - self._own), 0.0) / wall


def own_s(root: int) -> float:
    """Return the processor time that a process, all below it and the kernel's threads have used so far, in seconds."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    hertz = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(folder.name)
        used[pid] = sum(map(int, fields[11:15])) / hertz  # with what ended and was waited for
        children.setdefault(int(fields[1]), []).append(pid)
    waiting, total = [root, KERNEL_THREADS], 0.0
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total
