"""How does a probe run so that it can neither hang nor bring the agent down?

Each is a child of its own with a hard limit of time, in its own process group. Only its last words on standard output
count; a probe that crashes or runs out of time has failed, whatever it said before.
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
from reliability.agent.fields import Fields
from reliability.errors import ReliabilityError

MOST_LIMIT_S = 600.0
MOST_BYTES = 2**30
MOST_ROUNDS = 100
_CHECKOUT = str(Path(__file__).resolve().parents[3])


class ProbeCrashed(ReliabilityError):
    """A probe ended without a result."""

    code = "probe_crashed"
    hint = "A check that crashes is not passed: look at the node and its probe log before it is used."


class ProbeTimeout(ReliabilityError):
    """A probe did not end within its limit."""

    code = "probe_timeout"
    hint = "A check that does not end is not passed: look for a hanging device or a very slow network."


class Probes:
    """Runs the probes of this node; their output for people goes to `log_dir`."""

    def __init__(self, log_dir: Path, parent: int | None = None) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log_dir = log_dir
        self._parent = parent or os.getpid()
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def serve(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Have a child listen for measurements of others for a while; return its port at once."""
        fields = Fields(payload, "payload")
        limit_s = _limit(fields)
        request = {"token": fields.text("token"), "limit_s": limit_s, "bytes": fields.integer("bytes")}
        child = self._start("bandwidth", "serve", request)
        threading.Thread(target=self._finish, args=(child, limit_s + 2.0), daemon=True).start()
        return self._answer(child, 10.0, "bandwidth")

    def measure(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Measure the bandwidth to each peer, several rounds."""
        fields = Fields(payload, "payload")
        peers = [
            {"node": peer.text("node"), "address": peer.text("address"), "port": peer.integer("port")}
            for peer in fields.items("peers")
        ]
        limit_s = _limit(fields)
        request = {
            "peers": peers,
            "token": fields.text("token"),
            "bytes": min(fields.integer("bytes"), MOST_BYTES),
            "rounds": min(fields.integer("rounds"), MOST_ROUNDS),
            "limit_s": limit_s,
        }
        return self._run("bandwidth", "measure", request, limit_s)

    def sdc(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Compute what every healthy machine computes alike, several rounds, and return the digests."""
        fields = Fields(payload, "payload")
        request = {
            "seed": fields.integer("seed"),
            "rounds": min(fields.integer("rounds"), MOST_ROUNDS),
            "size": fields.integer("size"),
        }
        return self._run("sdc", "run", request, _limit(fields))

    def stop(self) -> None:
        """End all probes that still run."""
        with self._lock:
            pids = list(self._running)
        for pid in pids:
            _kill(pid)

    def _run(self, probe: str, mode: str, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        child = self._start(probe, mode, request)
        try:
            return self._answer(child, limit_s, probe)
        finally:
            self._finish(child, 0.0)

    def _start(self, probe: str, mode: str, request: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", f"reliability.agent.probes.{probe}", mode, f"--parent={self._parent}"]
        with (self._log_dir / f"probe-{probe}.log").open("ab") as log:
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
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(request).encode())
                child.stdin.close()
        return child

    def _answer(self, child: "subprocess.Popen[bytes]", limit_s: float, probe: str) -> dict[str, Any]:
        """Return the one line a probe answers with. Raises ProbeTimeout, ProbeCrashed."""
        if child.stdout is None:
            raise ProbeCrashed(f"The {probe} probe has no output.")
        line, end = b"", steady() + limit_s
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([child.stdout], [], [], max(end - steady(), 0.0))
            if not readable:
                _kill(child.pid)
                raise ProbeTimeout(f"The {probe} probe did not end within {limit_s:g} s and was killed.")
            piece = os.read(child.stdout.fileno(), 65536)
            if not piece:
                raise ProbeCrashed(f"The {probe} probe ended without a result (exit code {child.wait()}).")
            line += piece
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProbeCrashed(f"The {probe} probe failed: {answer['error']}")
        return answer

    def _finish(self, child: "subprocess.Popen[bytes]", limit_s: float) -> None:
        try:
            child.wait(timeout=limit_s or 0.5)
        except subprocess.TimeoutExpired:
            _kill(child.pid)
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
        with self._lock:
            self._running.discard(child.pid)


def _limit(fields: Fields) -> float:
    return min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
