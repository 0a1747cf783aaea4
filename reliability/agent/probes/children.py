"""How does a child of the agent run so that it can neither hang nor bring the agent down?

Each has a hard limit of time and its own process group, is asked on standard input, and answers with one line on
standard output; only that counts. One that crashes or runs out of time has failed, whatever it said before.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.errors import ReliabilityError

_CHECKOUT = str(Path(__file__).resolve().parents[3])

LEAVE_S = 5.0

Child = subprocess.Popen[bytes]


class ProbeCrashed(ReliabilityError):
    """A probe ended without a result."""

    code = "probe_crashed"
    hint = "A check that crashes is not passed: look at the node and its probe log before it is used."


class ProbeTimeout(ReliabilityError):
    """A probe did not end within its limit."""

    code = "probe_timeout"
    hint = "A check that does not end is not passed: look for a hanging device or a very slow network."


class Children:
    """Starts modules as children; what they say for people goes to `log_dir`."""

    def __init__(self, log_dir: Path, parent: int | None = None) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log_dir = log_dir
        self._parent = parent or os.getpid()
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def serve(self, module: str, request: Mapping[str, Any], *, limit_s: float) -> tuple[Child, dict[str, Any]]:
        """Have a child serve for a while; return it with what it answered once it was ready."""
        child = self._start(module, "serve", request)
        threading.Thread(target=self._finish, args=(child, limit_s + 2.0), daemon=True).start()
        return child, self._answer(child, 10.0, _name(module))

    def run(self, module: str, mode: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Run a child to its end and return its answer. Raises ProbeTimeout, ProbeCrashed."""
        child = self._start(module, mode, request)
        try:
            return self._answer(child, limit_s, _name(module))
        finally:
            self._finish(child, 0.0)

    def begin(self, module: str, mode: str, request: Mapping[str, Any]) -> Child:
        """Start a child that tells by lines; the caller reads them, in the thread that calls this, and ends it."""
        return self._start(module, mode, request)

    def attend(self, module: str, request: Mapping[str, Any]) -> Child:
        """Start a child that goes on until it is ended; more may be said to it, a line each, and never waits for it."""
        child = self._spawn(module, "attend")
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(request).encode() + b"\n")
                child.stdin.flush()
            os.set_blocking(child.stdin.fileno(), False)
        return child

    def signal_end(self, child: Child) -> None:
        """Have a child end; the thread that reads it finds out and collects it."""
        kill(child.pid)

    def end(self, child: Child) -> None:
        """End a child that was begun."""
        kill(child.pid)
        self._finish(child, 0.0)

    def stop(self) -> None:
        """End all that still run."""
        with self._lock:
            pids = list(self._running)
        for pid in pids:
            kill(pid)

    def _start(self, module: str, mode: str, request: Mapping[str, Any]) -> Child:
        child = self._spawn(module, mode)
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(request).encode())
                child.stdin.close()
        return child

    def _spawn(self, module: str, mode: str) -> Child:
        argv = [sys.executable, "-m", module, mode, f"--parent={self._parent}"]
        with (self._log_dir / f"{_log_name(module)}.log").open("ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _CHECKOUT},
            )
        with self._lock:
            self._running.add(child.pid)
        return child

    def _answer(self, child: Child, limit_s: float, name: str) -> dict[str, Any]:
        """Return the one line a probe answers with. Raises ProbeTimeout, ProbeCrashed."""
        if child.stdout is None:
            raise ProbeCrashed(f"The {name} has no output.")
        line, end = b"", steady() + limit_s
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([child.stdout], [], [], max(end - steady(), 0.0))
            if not readable:
                kill(child.pid)
                raise ProbeTimeout(f"The {name} did not end within {limit_s:g} s and was killed.")
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                raise ProbeCrashed(f"The {name} ended without a result (exit code {child.wait()}).")
            line += piece
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProbeCrashed(f"The {name} failed: {answer['error']}")
        return answer

    def _finish(self, child: Child, limit_s: float) -> None:
        try:
            child.wait(timeout=limit_s or 0.5)
        except subprocess.TimeoutExpired:
            kill(child.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel is left
                child.wait(timeout=LEAVE_S)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with self._lock:
            self._running.discard(child.pid)


def kill(pid: int) -> None:
    """End a child and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _name(module: str) -> str:
    kind, _, name = module.rpartition(".")
    return f"{name} probe" if kind.endswith(".probes") else name.replace("_", " ")


def _log_name(module: str) -> str:
    kind, _, name = module.rpartition(".")
    return f"probe-{name}" if kind.endswith(".probes") else name
