"""Who keeps the two movers alive and listens to what they tell?

One thread for each: it starts the process, passes its lines on as reports, and starts it again when it died or when
anything else went wrong, which is told as a finding as soon as there is room for one. The thread lives as long as the
agent, which matters: a child asks to end with the thread that started it.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from reliability.agent import sealing
from reliability.agent.clock import steady
from reliability.agent.config import AgentConfig
from reliability.agent.jobs import LocalJobs
from reliability.agent.mover import TO_SSD, TO_STORAGE
from reliability.errors import TierError
from reliability.tiers import shards
from reliability.tiers.directory import DirectoryTier

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
REPEAT_S = 60.0
_MODULES = {TO_SSD: "reliability.agent.ssd_mover", TO_STORAGE: "reliability.agent.storage_mover"}
_CHECKOUT = str(Path(__file__).resolve().parents[2])

log = logging.getLogger("stepkeeper.agent")


class Movers:
    """The second and the third process of every snapshot on this node."""

    def __init__(self, config: AgentConfig, jobs: LocalJobs, report: Callable[..., None]) -> None:
        self._config = config
        self._jobs = jobs
        self._report = report
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._owed: dict[str, tuple[str, int]] = {}
        self._told_at: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(direction,), name=direction, daemon=True)
            for direction in (TO_SSD, TO_STORAGE)
        ]

    def start(self) -> None:
        """Start both movers."""
        for thread in self._threads:
            thread.start()

    def pids(self) -> dict[str, int]:
        """Return the movers' process ids by direction."""
        with self._lock:
            return {direction: child.pid for direction, child in self._children.items()}

    def nudge(self) -> None:
        """Have the movers look at once instead of at their next turn."""
        with self._lock:
            children = list(self._children.values())
        for child in children:
            if child.stdin is not None:
                with contextlib.suppress(OSError, ValueError):
                    os.write(child.stdin.fileno(), b"\n")

    def drain(self, memory: DirectoryTier, job: str, limit_s: float) -> bool:
        """Wait until the newest shard of each rank in memory lies on the SSD too; return whether it does."""
        ssd = DirectoryTier(self._config.ssd_dir / job)
        end = steady() + limit_s
        sealing.seal_all(memory.root, job=job)
        while not self._stopping.is_set():
            self.nudge()
            if _newest(memory) <= _all(ssd):
                return True
            if steady() > end:
                log.warning("newest snapshot not on the SSD in time: job=%s limit_s=%s", job, limit_s)
                return False
            self._stopping.wait(0.05)
        return False

    def stop(self) -> None:
        """End both movers. What they were copying leaves no committed part."""
        self._stopping.set()
        with self._lock:
            children = list(self._children.values())
        for child in children:
            child.kill()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _keep(self, direction: str) -> None:
        wait_s = FIRST_WAIT_S
        while not self._stopping.is_set():
            began = steady()
            why = self._run_guarded(direction)
            if self._stopping.is_set():
                return
            log.error("mover ended, starting it again: node=%s mover=%s why=%s", self._config.name, direction, why)
            wait_s = FIRST_WAIT_S if steady() - began > LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            self._stopping.wait(wait_s)

    def _run_guarded(self, direction: str) -> str:
        """Run a mover to its end and return why it ended. Boundary: whatever happens here, it is started again."""
        self._tell_owed()
        try:
            self._run(direction)
        except Exception as error:
            log.exception("mover not kept: node=%s mover=%s", self._config.name, direction)
            self._owe(direction, f"{type(error).__name__}: {error}")
            self._tell_owed()
            return str(error)
        return "it ended by itself"

    def _owe(self, direction: str, why: str) -> None:
        """Have a failure told, now or, when the disk for reports is what failed, as soon as that is over."""
        with self._lock:
            first, times = self._owed.get(direction, (why, 0))
            self._owed[direction] = (first, times + 1)

    def _tell_owed(self) -> None:
        """Tell what failed, a lasting failure once in a while. Boundary: that it cannot be told hinders nothing."""
        with self._lock:
            owed = dict(self._owed)
        for direction, (why, times) in owed.items():
            if steady() - self._told_at.get(direction, -REPEAT_S) < REPEAT_S:
                continue
            evidence = f"The copying of snapshots {direction} failed and was tried again: {why}"
            try:
                self._report("finding", {"code": "mover-failed", "rank": None, "evidence": evidence, "count": times})
            except Exception as error:
                log.warning("failure of a mover not told yet: mover=%s reason=%s", direction, error)
                return
            with self._lock:
                self._owed.pop(direction, None)
                self._told_at[direction] = steady()

    def _run(self, direction: str) -> None:
        with (self._config.data_dir / f"{direction}.log").open("ab") as errors:
            child = subprocess.Popen(
                self._argv(direction),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": _CHECKOUT},
            )
        with self._lock:
            self._children[direction] = child
        with child:
            try:
                if not self._stopping.is_set():
                    for line in child.stdout or ():
                        self._pass_on(line)
            finally:
                # One whose word could not be kept starts anew: it then tells all copies again.
                child.kill()

    def _argv(self, direction: str) -> list[str]:
        config = self._config
        folders = {"jobs-dir": config.data_dir / "jobs", "memory-dir": config.memory_dir, "ssd-dir": config.ssd_dir}
        options = [f"--{name}={path}" for name, path in folders.items()]
        identity = [f"--node={config.name}", f"--parent={os.getpid()}"]
        identity += [f"--storage-bytes-per-s={config.storage_bytes_per_s}"]
        return [sys.executable, "-m", _MODULES[direction], *identity, *options]

    def _pass_on(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            kind, job, body = said["kind"], said["job"], said["body"]
        except (ValueError, KeyError, TypeError):
            log.warning("mover said something unreadable: %r", line[:200])
            return
        self._report(kind, body, job=job, epoch=self._jobs.epoch(job))
        self._tell_owed()
        if kind == "snapshot_copy" and body.get("tier") == "ssd":
            self.nudge()


def _newest(tier: DirectoryTier) -> set[shards.Shard]:
    newest: dict[int, shards.Shard] = {}
    for shard in sorted(_all(tier)):
        newest[shard.rank] = shard
    return set(newest.values())


def _all(tier: DirectoryTier) -> set[shards.Shard]:
    try:
        return {shard for shard in map(shards.parse, tier.keys("")) if shard is not None}
    except TierError:
        return set()
