"""Who watches over one process-runtime container? This program: its whole tree ends when it must.

It is a file of its own, run by path with the standard library only, so that it starts in a few hundredths of a second.
As a child subreaper it inherits every orphan of the container, also one that called setsid or forked twice; it waits
until it has no child left, so its own end proves that nothing of the container runs any more. It ends the tree when the
main process ends, when it is told to (SIGUSR1), and when the process that started it dies for whatever reason.
SIGTERM is passed on to the main process alone, as a container engine does. The main process dies with this one.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RETRY_S = 0.05
LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Call prctl(2) with one argument; raise OSError when it is refused."""
    if LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl was refused")


def before_exec(shim: int, memory_bytes: int) -> Callable[[], None]:
    """Return what the child does between fork and exec: die with the shim, and keep to its memory limit."""

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(137)
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))

    return prepare


def spawn(order: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start the main process in a session of its own, its output in the log file."""
    with Path(order["log"]).open("ab") as log:
        return subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["workdir"] or None,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before_exec(os.getpid(), order["memory_bytes"]),
        )


def children(pid: int) -> list[int]:
    """Return the direct children of a process, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.name))
    return found


def reap(main: int) -> int | None:
    """Reap every child that has ended; return the exit code of the main process if it was among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == main:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def end_tree(main: int, wake: int) -> int | None:
    """Kill all descendants and return once none is left: each death hands us the next generation of orphans."""
    code = None
    while found := children(os.getpid()):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        select.select([wake], [], [], RETRY_S)
        drain(wake)
        ended = reap(main)
        code = code if ended is None else ended
    return code


def drain(wake: int) -> bytes:
    """Return the numbers of the signals that came since last asked."""
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""


def watch(main: int, parent: int, wake: int) -> int:
    """Wait for the end of the main process, of the parent, or an order to kill; return the exit code."""
    while True:
        readable, _, _ = select.select([parent, wake], [], [])
        signals = drain(wake)
        code = reap(main)
        if code is not None:
            end_tree(main, wake)
            return code
        if parent in readable or signal.SIGUSR1 in signals:
            ended = end_tree(main, wake)
            return 137 if ended is None else ended
        if signal.SIGTERM in signals:
            os.kill(main, signal.SIGTERM)


def catch_signals() -> int:
    """Turn signals into bytes on a pipe, so that none is lost between two waits. Returns its read end."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return read_end


def answer(message: Mapping[str, Any]) -> None:
    """Tell the runtime, once, what became of the start."""
    os.write(1, (json.dumps(message) + "\n").encode())
    os.close(1)


def main() -> None:
    """Read the order from standard input, run it, and leave its exit code in the exit file."""
    order = json.loads(sys.stdin.buffer.read())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent = os.pidfd_open(order["parent"])
    if os.getppid() != order["parent"]:
        os._exit(137)
    wake = catch_signals()
    try:
        process = spawn(order)
    except (OSError, subprocess.SubprocessError) as error:
        answer({"error": str(error)})
        os._exit(127)
    answer({"pid": process.pid})
    code = watch(process.pid, parent, wake)
    with contextlib.suppress(OSError):
        Path(order["exit"]).write_text(json.dumps({"exit_code": code}))
    os._exit(code)


if __name__ == "__main__":
    main()
