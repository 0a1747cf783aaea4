"""How does one run of a check go on in a process of its own? It says its outcome in one line and is gone."""

import contextlib
import json
import os
import signal
import traceback
from dataclasses import asdict
from typing import Any

from reliability.agent import sendable
from reliability.agent.collectors import saying
from reliability.agent.collectors.checking import Check, Inputs, Outcome
from reliability.agent.parent import end_with_parent


class Run:
    """One run. `outcome` is there when it said it, or ended without one; until then the limit counts."""

    def __init__(self, check: Check, inputs: Inputs, *, ends_at: float) -> None:
        self.ends_at = ends_at
        self.killed_at: float | None = None
        self.outcome: dict[str, Any] | None = None
        self._said = b""
        self._reaped = False
        self.handle, write = os.pipe2(os.O_CLOEXEC)
        host = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run(check, inputs, host, write)
        os.close(write)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def read(self) -> None:
        """Take what it said since."""
        data = os.read(self.handle, 65536)
        self._said += data
        if self._said.endswith(b"\n"):
            self._take(self._said)
        elif not data or len(self._said) > saying.LONGEST:
            self._take(b'{"ok": null, "reason": "It ended without a result; see check_host.log."}')

    def kill(self) -> None:
        """Kill it and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reaped(self) -> bool:
        """Collect it; return whether it is gone."""
        if not self._reaped:
            try:
                self._reaped = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:
                self._reaped = True
            if self._reaped:
                self.leave()
        return self._reaped

    def leave(self) -> None:
        """Listen no more."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def _take(self, line: bytes) -> None:
        self.outcome = json.loads(line) if self.killed_at is None else None
        self.leave()


def _run(check: Check, inputs: Inputs, host: int, write: int) -> None:
    """Run the check in this process and end it. Boundary: whatever a check raises is its outcome."""
    try:
        os.setpgid(0, 0)
        end_with_parent(host)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)  # what a library prints is for people, not for the agent
        said = _as_said(check.run(inputs))
        data = sendable.text_of(said).encode() + b"\n"
    except BaseException as error:
        traceback.print_exc()
        reason = f"The check itself failed: {type(error).__name__}: {error}"[: saying.EVIDENCE]
        data = sendable.text_of({"ok": None, "reason": reason}).encode() + b"\n"
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(write, data) :]
    os._exit(0)


def _as_said(outcome: Outcome) -> dict[str, Any]:
    said = asdict(outcome)
    said["findings"] = saying.found(outcome.findings)
    return said
