"""Keeps a set of children running until it is told to stop, then ends them in order.

One thread, one loop: copy the children's output, notice deaths, start again what is due. SIGTERM, SIGINT and
SIGHUP ask for a stop; a second one ends everything at once. If the supervisor itself is killed, the kernel
kills the children (processes.spawn) and the sweeper, where one was asked for, whatever they left.
"""

import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO

from reliability.supervisor.children import Child
from reliability.supervisor.processes import ChildSpec
from reliability.supervisor.status import write_status

TICK_S = 0.1
STOP_LIMIT_S = 12.0
LAST_LIMIT_S = 5.0
SWEEP_LIMIT_S = 10.0


class StartFailed(Exception):
    """Something did not come up; the message is for the operator."""


class Supervisor:
    """The children of one data folder."""

    def __init__(self, folder: Path, *, out: TextIO, log: TextIO | None = None) -> None:
        """Tell on `out` what happens; the children's own lines go to `log` where one is given."""
        self.instance = secrets.token_hex(8)
        self.children: dict[str, Child] = {}
        self.stop_requests = 0
        self.address = ""
        self._folder = folder
        self._out = out
        self._log = log or out
        self._pipes = selectors.DefaultSelector()
        self._sweeper: subprocess.Popen[bytes] | None = None
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.stop_requests += 1

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self._print(self._out, "up", text)

    def announce(self, address: str) -> None:
        """Tell where the dashboard is, now that it answers."""
        self.address = address
        self._save()
        self.say(f"Stepkeeper is up: {address}")

    def sweep_afterwards(self, folders: Sequence[Path]) -> None:
        """However this process ends: end every descendant still there, also those that left their group.

        Then remove `folders`. A helper process waits for the end of a pipe that only this process holds.
        """
        self._sweeper = subprocess.Popen(
            [sys.executable, "-m", "reliability.supervisor.sweeper", self.instance, *map(str, folders)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, spec: ChildSpec) -> Child:
        """Add a child and start it."""
        child = Child(spec=spec, instance=self.instance, clock=time.monotonic)
        self.children[spec.name] = child
        self._launch(child)
        return child

    def run_until(self, condition: Callable[[], bool], *, limit_s: float) -> bool:
        """Keep everything running until the condition holds; False after the limit or when told to stop."""
        deadline = time.monotonic() + limit_s
        while not self.stop_requests and time.monotonic() < deadline:
            if condition():
                return True
            self._tick()
        return False

    def wait_for(self, child: Child, condition: Callable[[], bool], *, limit_s: float, what: str) -> None:
        """Keep everything running until `child` is ready. Raises StartFailed with its last lines of output."""
        deaths = child.deaths
        done = self.run_until(lambda: child.deaths - deaths >= 3 or condition(), limit_s=limit_s)
        if self.stop_requests:
            raise StartFailed("Told to stop while starting.")
        if not done or child.deaths - deaths >= 3:
            self._copy_output(0.2)
            tail = "\n".join(f"    {line}" for line in child.lines) or "    (it printed nothing)"
            raise StartFailed(f"{child.spec.name} did not come up: {what}. Its last lines:\n{tail}")

    def run(self) -> None:
        """Keep everything running until told to stop."""
        while not self.stop_requests:
            self._tick()

    def stop(self) -> bool:
        """End all children in order; True when none of them had to be killed."""
        clean = True
        stages = sorted({child.spec.stop_stage for child in self.children.values()})
        for stage in stages:
            members = [child for child in self.children.values() if child.spec.stop_stage == stage]
            clean &= self._end(members, limit_s=STOP_LIMIT_S if stage == stages[0] else LAST_LIMIT_S)
        self._sweep()
        self._copy_output(0.0)
        self._save()
        return clean

    def _tick(self) -> None:
        self._copy_output(TICK_S)
        for child in self.children.values():
            if child.notice_death():
                self.say(f"{child.spec.name} ended with {child.last_exit}; again in {child.backoff_s:g} s")
                self._save()
            if not child.alive and time.monotonic() >= child.start_at:
                self._launch(child)

    def _launch(self, child: Child) -> None:
        """Start a child. Raises StartFailed at its first start alone: later the machine may just be short of memory."""
        try:
            output = child.start()
        except (OSError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if not child.ever_ran:
                raise StartFailed(f"{child.spec.name}: cannot run {child.spec.argv[0]} ({why}).") from error
            child.notice_failed_start()
            self.say(f"{child.spec.name} could not be started ({why}); again in {child.backoff_s:g} s")
            return
        self._pipes.register(output, selectors.EVENT_READ, child)
        self._save()

    def _end(self, members: Sequence[Child], *, limit_s: float) -> bool:
        """End some children; True when none had to be killed. Another request to stop cuts the wait short."""
        for child in members:
            child.signal(signal.SIGTERM)
        requests = self.stop_requests
        left = self._wait_dead(members, limit_s=limit_s, unless=lambda: self.stop_requests > requests)
        for child in left:
            self.say(f"{child.spec.name} did not end by itself: killed")
            child.signal(signal.SIGKILL)
        self._wait_dead(left, limit_s=LAST_LIMIT_S, unless=lambda: False)
        return not left

    def _wait_dead(self, members: Sequence[Child], *, limit_s: float, unless: Callable[[], bool]) -> list[Child]:
        """Wait for their ends and return those that still run."""
        deadline = time.monotonic() + limit_s
        left = [child for child in members if child.alive]
        while left and time.monotonic() < deadline and not unless():
            self._copy_output(TICK_S / 4)
            left = [child for child in left if not child.notice_death()]
        return left

    def _sweep(self) -> None:
        if self._sweeper is None or self._sweeper.stdin is None:
            return
        self._sweeper.stdin.close()
        try:
            self._sweeper.wait(SWEEP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.say("the clean-up takes long; it goes on by itself")

    def _copy_output(self, wait_s: float) -> None:
        for key, _ in self._pipes.select(wait_s):
            data = os.read(key.fd, 65536)
            if not data:
                self._pipes.unregister(key.fd)
                os.close(key.fd)
                continue
            for line in data.decode(errors="replace").splitlines():
                key.data.lines.append(line)
                self._print(self._log, key.data.spec.name, line)

    @staticmethod
    def _print(target: TextIO, name: str, text: str) -> None:
        try:
            target.write(f"{name:<10} | {text}\n")
            target.flush()
        except OSError:
            return  # nobody reads any more; the work goes on

    def _save(self) -> None:
        children = {name: child.describe() for name, child in self.children.items()}
        try:
            write_status(self._folder, instance=self.instance, address=self.address, children=children)
        except OSError as error:
            self.say(f"the status file could not be written ({error.strerror}); the work goes on")
