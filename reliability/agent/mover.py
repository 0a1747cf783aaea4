"""What do the two movers of a node have in common? The second and the third process of a snapshot's way.

Each is a process of its own (`ssd_mover`, `storage_mover`), started by the agent and ended with it, and needs neither
server nor broker. A line on standard input only makes it look at once. Every copy made, and every trouble, is one
JSON line on standard output.
"""

import argparse
import contextlib
import os
import select
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from reliability.agent import floors, jobrecord
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import Lane
from reliability.agent.parent import end_with_parent

LOOK_S = 0.5
STAND_BACK = 5
"""How much nicer than training a mover is: where all processors are busy, training and its copies come first."""
TO_SSD = "memory-to-ssd"
TO_STORAGE = "ssd-to-storage"


class Mover(ABC):
    """The lanes of all jobs in one direction."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._lanes: dict[str, Lane] = {}
        self._seen: dict[str, tuple[int, int]] = {}

    def pass_once(self) -> bool:
        """Go through all jobs once; return whether anything was copied."""
        self._take_up_records()
        now = time.monotonic()
        copied = [lane.run(now) for lane in self._lanes.values()]  # every lane has its turn
        return any(copied)

    def _take_up_records(self) -> None:
        """Read the records when one of them changed: jobs that are over only cost a look at the folder."""
        seen = _stamps(self.options.jobs_dir)
        if seen == self._seen:
            return
        found = {record.job: record for record in jobrecord.load_all(self.options.jobs_dir)}
        for record in found.values():
            self._take_up(record)
        for job in self._lanes.keys() - found.keys():
            self._lanes.pop(job).let_go()
        self._seen = seen

    def _take_up(self, record: JobRecord) -> None:
        lane = self._lanes.get(record.job)
        if lane is None or _way(lane.record) != _way(record):
            lane = self.lane(record)
            if lane is None:
                return
            self._lanes[record.job] = lane
        lane.follow(record, floors.load(self.options.jobs_dir, record.job))

    def wakers(self) -> Sequence[int]:
        """Return handles that become readable when there is something to do."""
        return ()

    @abstractmethod
    def lane(self, record: JobRecord) -> Lane | None:
        """Return the lane of a job, or None when it has no such way."""


def _way(record: JobRecord) -> tuple[str, str]:
    return record.storage_dir, record.job_key


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what tells one version of each file in a folder from the next: files are replaced, never rewritten."""
    with os.scandir(folder) as entries:
        found = {}
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat(follow_symlinks=False)
                found[entry.name] = (stat.st_ino, stat.st_mtime_ns)
        return found


def run(kind: type[Mover], argv: Sequence[str] | None = None) -> None:
    """Copy until the agent is gone."""
    options = _parser().parse_args(argv)
    end_with_parent(options.parent)
    os.nice(STAND_BACK)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends its movers itself
    mover = kind(options)
    while True:
        if mover.pass_once():
            continue
        readable, _, _ = select.select([sys.stdin.fileno(), *mover.wakers()], [], [], LOOK_S)
        said = {handle: os.read(handle, 4096) for handle in readable}
        if said.get(sys.stdin.fileno()) == b"":
            return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mover")
    parser.add_argument("--node", required=True)
    parser.add_argument("--parent", type=int, required=True, help="process id of the agent")
    parser.add_argument("--storage-bytes-per-s", type=float, default=0.0, help="limit of the node; 0 means none")
    for folder in ("jobs-dir", "memory-dir", "ssd-dir"):
        parser.add_argument(f"--{folder}", type=Path, required=True)
    return parser
