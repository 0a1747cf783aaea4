"""Did the kernel kill a process of a container for memory? Its control group counts that, before anybody else tells.

The engine's own word comes with the end of a container; a rank that is killed leaves its launcher and its container
running. The count is compared with the one before; what rose a moment ago counts for every rank that ended with it.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL
from typing import Any

from reliability.agent.clock import steady

STICKS_S = 10.0
_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)

Report = Callable[[str, Mapping[str, Any]], None]


class MemoryKills:
    """The kills of one job's container. `main`: number of its main process as last seen, 0 for none."""

    def __init__(self, main: Callable[[], int], *, proc: Path = _PROC, root: Path = _ROOT) -> None:
        self._main = main
        self._proc = proc
        self._root = root
        self._file: Path | None = None
        self._of = 0
        self._count = 0
        self._rose_at = -STICKS_S

    def beside(self, report: Report) -> Report:
        """Return what reports in the same way, and with the end of a rank by SIGKILL whether it was for memory."""

        def told(kind: str, body: Mapping[str, Any]) -> None:
            if kind != "rank_exit":
                self.look()
            elif body.get("signal") == SIGKILL:
                body = {**body, "oom_killed": self.rose()}
            report(kind, body)

        return told

    def look(self) -> None:
        """Take note of the count: in a container that is new here, only what comes later counts as risen."""
        if self._find():
            self._count = self._read()
        self._compare()

    def rose(self) -> bool:
        """Return whether a process of the container was killed for memory just now."""
        self._find()
        self._compare()
        return steady() - self._rose_at < STICKS_S

    def _compare(self) -> None:
        count = self._read()
        if count > self._count:
            self._rose_at = steady()
        self._count = count

    def _find(self) -> bool:
        """Find the counter of the container that runs now; that of one that ended stays until there is another."""
        main = self._main()
        if not main or main == self._of:
            return False
        file = counter_of(self._proc, str(main), self._root)
        if file is None or file == counter_of(self._proc, "self", self._root):
            return False
        self._file, self._of, self._count = file, main, 0
        return True

    def _read(self) -> int:
        with contextlib.suppress(OSError):
            if self._file is not None and (found := _COUNT.search(self._file.read_text())):
                return int(found[1])
        return self._count


def counter_of(proc: Path, pid: str, root: Path) -> Path | None:
    """Return the file that counts the kills of a process's control group, of either version; None when unknown."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / pid / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path.strip("/"))
    if "memory" in groups:
        return root / "memory" / groups["memory"] / "memory.oom_control"
    return root / groups[""] / "memory.events" if "" in groups else None
