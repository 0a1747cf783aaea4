"""Which rank of which job is a process that the kernel names, also shortly after it is gone?

The kernel's log numbers processes (and threads) as the first process namespace of the machine does. Where the agent
runs in another one, its own numbers say nothing about them, and only the control group in a line tells whose one was.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import processes
from reliability.agent.clock import steady
from reliability.agent.collectors.found import NODE, Whose
from reliability.agent.localjob import LocalJob

AGAIN_S = 0.2
KEPT_S = 600.0
"""So long a process is known after it was last seen."""
MOST_KNOWN = 50_000
OTHER = "other"
_PROC = Path("/proc")
_FIRST_NAMESPACE = "pid:[4026531836]"
_ID_LENGTH = 12


@dataclass
class _Known:
    whose: Whose
    seen_at: float


class Whereabouts:
    """The processes of all ranks on this node, kept up to date by `look`. Safe for several threads."""

    def __init__(self, parts: Callable[[], Collection[LocalJob]], *, proc: Path = _PROC) -> None:
        self._parts = parts
        self._proc = proc
        self._lock = threading.Lock()
        self._processes: dict[int, _Known] = {}
        self._groups: dict[str, _Known] = {}
        self._mains: dict[str, tuple[int, int]] = {}
        self._ranks: dict[tuple[str, int], dict[int, int]] = {}
        self._looking = threading.Lock()
        self._looked_at = -AGAIN_S
        self._complete = False
        self._numbers_are_ours = _namespace(proc) == _FIRST_NAMESPACE
        self._own_group = _group(proc, "self")

    def look(self) -> None:
        """See which processes the ranks have now."""
        with self._looking:
            self._look(steady())

    def _look(self, now: float) -> None:
        self._looked_at = now
        seen: dict[int, Whose] = {}
        groups: dict[str, Whose] = {}
        complete = True
        parts = [part for part in self._parts() if part.record.unfenced]
        attempts = {(part.record.job, part.record.started_epoch) for part in parts}
        self._ranks = {attempt: ranks for attempt, ranks in self._ranks.items() if attempt in attempts}
        children = _children(self._proc) if parts and self._numbers_are_ours else {}
        for part in parts:
            complete = self._see(part, children, seen, groups) and complete
        with self._lock:
            self._complete = complete
            self._processes.update((pid, _Known(whose, now)) for pid, whose in seen.items())
            self._groups.update((group, _Known(whose, now)) for group, whose in groups.items())
            self._forget(now)

    def whose(self, fields: Mapping[str, Any]) -> Whose | None:
        """Return whom a line with these fields is about: a rank or a job.

        NODE when that cannot be told, None when it is certain that it is none of ours.
        """
        pid, group = fields.get("pid"), fields.get("cgroup")
        number = pid if isinstance(pid, int) else None
        by_number = self._by_number(number)
        if by_number is not None:
            return by_number
        if isinstance(group, str):
            return self._by_group(group, number)
        if number is None or not self._numbers_are_ours:
            return NODE
        return self._by_ancestors(number)

    def mains(self) -> dict[str, int]:
        """Return the main process of each container with ranks, by job, as it was last seen."""
        return {job: pid for job, (_, pid) in list(self._mains.items()) if processes.alive(pid)}

    # What is known

    def _by_number(self, number: int | None) -> Whose | None:
        with self._lock:
            known = self._processes.get(number) if number is not None else None
        return None if known is None else known.whose

    def _by_group(self, group: str, number: int | None) -> Whose | None:
        """A line that names group and number of a victim tells whose the number is in the lines that follow."""
        with self._lock:
            parts = set(group.split("/"))
            known = next((known for name, known in self._groups.items() if name in parts), None)
            if known is not None and number is not None:
                self._processes[number] = _Known(known.whose, steady())
            if known is not None:
                return known.whose
            return None if self._groups and self._complete else NODE

    def _by_ancestors(self, number: int) -> Whose | None:
        """A process too young to have been seen: another look, or its parents, tell while it is there."""
        chain = list(_ancestors(self._proc, number))
        if chain and steady() - self._looked_at > AGAIN_S:
            self.look()
        for each in (number, *chain):
            if (known := self._by_number(each)) is not None:
                return known
        return None if chain and self._complete else NODE

    # Looking

    def _see(
        self, part: LocalJob, children: Mapping[int, list[int]], seen: dict[int, Whose], groups: dict[str, Whose]
    ) -> bool:
        """Add the processes of a part; return whether all its ranks were seen."""
        record = part.record
        main = self._main(part)
        if main is None:
            return False
        group = _group(self._proc, str(main))
        if group and group != self._own_group:
            groups[group] = Whose(job=record.job, epoch=record.epoch)
        if not self._numbers_are_ours:
            return True
        inner = part.folder.pids(record.started_epoch) or {}
        known = self._ranks.setdefault((record.job, record.started_epoch), {})
        for rank in inner.keys() - known.keys():
            if (pid := processes.outside_number(main, inner[rank])) is not None:
                known[rank] = pid
        for rank, pid in known.items():
            whose = Whose(job=record.job, epoch=record.epoch, rank=rank)
            for each in _with_descendants(pid, children):
                seen.update(dict.fromkeys(_threads(self._proc, each), whose))
        return known.keys() >= inner.keys()

    def _main(self, part: LocalJob) -> int | None:
        """Return the main process of a container; the engine is asked once for each that began."""
        known = self._mains.get(part.record.job)
        if known is not None and known[0] == part.begun and processes.alive(known[1]):
            return known[1]
        begun, info = part.begun, part.container.running()
        if info is None or not info.pid:
            return None
        self._mains[part.record.job] = (begun, info.pid)
        return info.pid

    def _forget(self, now: float) -> None:
        self._groups = {name: known for name, known in self._groups.items() if now - known.seen_at <= KEPT_S}
        kept = [(number, known) for number, known in self._processes.items() if now - known.seen_at <= KEPT_S]
        self._processes = dict(kept[-MOST_KNOWN:])


def _namespace(proc: Path) -> str:
    try:
        return str((proc / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def _group(proc: Path, pid: str) -> str:
    """Return the last part of the path of a process's (memory) control group that can name a container, else ''."""
    with contextlib.suppress(OSError):
        for line in (proc / pid / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory") or "memory" in controllers.split(","):
                name = path.rstrip("/").rpartition("/")[2]
                return name if len(name) >= _ID_LENGTH else ""
    return ""


def _children(proc: Path) -> dict[int, list[int]]:
    """Return the children of every process, from one pass over all: cheaper than to ask every thread for its own."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir(proc):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def _with_descendants(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += children.get(each, ())


def _threads(proc: Path, pid: int) -> list[int]:
    """Return the numbers of a process's threads, its own among them: the kernel names the one that failed."""
    try:
        return [int(entry.name) for entry in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return [pid]


def _ancestors(proc: Path, number: int) -> Iterator[int]:
    """Yield a process (by the number of any of its threads) and its parents; nothing when it is gone."""
    for _ in range(64):
        try:
            status = (proc / str(number) / "status").read_text()
        except OSError:
            return
        said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        yield int(said.get("Tgid") or number)
        number = int(said.get("PPid") or 0)
        if number <= 0:
            return
