"""Is the machine quiet enough for a figure to mean something? What all other processes use of the processors."""

import os
import time
from pathlib import Path

BUSY_CORES = 0.35
"""A sample counts as disturbed when others used more than this many cores while it was taken."""
WORST_SHARE = 0.25
"""With more disturbed samples than this nothing is judged."""


def _spent() -> tuple[float, float]:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / hertz, fields[7] / hertz


class Watch:
    """Tells how many cores others used since it was made; `own` are the seconds of processor time of this bench."""

    def __init__(self, own: float) -> None:
        self._began, self._own = time.perf_counter(), own
        self._all, self._stolen = _spent()

    def others(self, own: float) -> float:
        """Return the cores that others, the hypervisor included, used on average."""
        wall = max(time.perf_counter() - self._began, 1e-3)
        everything, _stolen = _spent()
        return max(everything - self._all - (own - self._own), 0.0) / wall


def own_s(root: int) -> float:
    """Return the processor time that a process and all below it have used so far, in seconds."""
    parents: dict[int, list[tuple[int, float]]] = {}
    total, hertz = 0.0, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        used = sum(map(int, fields[11:15])) / hertz  # with what ended and was waited for
        if int(folder.name) == root:
            total += used
        parents.setdefault(int(fields[1]), []).append((int(folder.name), used))
    waiting = [root]
    while waiting:
        for child, used in parents.get(waiting.pop(), []):
            total += used
            waiting.append(child)
    return total
