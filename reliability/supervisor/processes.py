"""How is one child process started so that it can neither outlive its supervisor nor be ended half-way?"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
MARKER = "STEPKEEPER_INSTANCE"
"""Every descendant of a supervisor carries this variable, so that all of them can be found in /proc."""

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """What to run. Children of a higher `stop_stage` are ended only when all of the lower ones are gone."""

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stop_stage: int = 0


def _die_with(parent: int) -> Callable[[], None]:
    """Return what the new process does before its program: be killed when the supervisor dies."""

    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the signal was set
            os._exit(1)

    return prepare


def spawn(spec: ChildSpec, *, instance: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the child in a session of its own; returns it and the pipe with all its output.

    Call from the main thread only: the kernel's death signal is bound to the thread that forks.
    """
    output, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            list(spec.argv),
            cwd=spec.cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **spec.env, MARKER: instance},
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(write_end)
    return process, output


def signal_group(process: subprocess.Popen[bytes], signum: int) -> None:
    """Send a signal to the child and all that is still in its process group."""
    try:
        os.killpg(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return  # the group is gone


def reap(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a child that ended, after killing what is left of its group; None while it runs.

    The dead leader is collected last: until then its number cannot become another process group.
    """
    if process.returncode is not None:
        return process.returncode
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    signal_group(process, signal.SIGKILL)
    return process.wait()
