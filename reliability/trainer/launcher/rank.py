"""What happens in a forked rank before and while its program runs?

The program must not notice that it was forked: arguments, folder, environment, output, signals and random numbers
are as in a process of its own.
"""

import contextlib
import fcntl
import io
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ..folder import JobFolder
from . import linux

NOT_FOUND = 127
NOT_RUNNABLE = 126
_NO_SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


@dataclass(frozen=True, kw_only=True)
class RankStart:
    """All a forked child needs to become the rank."""

    program: Sequence[str]
    mode: str
    workdir: str
    env: Mapping[str, str]
    output: int
    private: Sequence[int]
    launcher: int


def run(start: RankStart) -> int:
    """Become the rank: run its program in this process. Returns the exit code in fork mode, never in plain mode."""
    _leave_launcher(start)
    if start.mode == "plain":
        _execute(start.program)
    return _run_file(start.program)


def _leave_launcher(start: RankStart) -> None:
    os.setsid()
    linux.die_with_parent(start.launcher)
    _own_signals()
    _own_output(start.output, start.private)
    os.environ.update(start.env)
    _hold_alive(start.env)
    if start.workdir:
        os.environ["PWD"] = start.workdir
        try:
            os.chdir(start.workdir)
        except OSError as error:
            _refuse(f"cannot enter the working folder {start.workdir}: {error.strerror}", NOT_RUNNABLE)


def _hold_alive(env: Mapping[str, str]) -> None:
    """Hold a lock for as long as any process of this rank lives, also after it became another program.

    The node's second process looks at it: what a rank wrote that was killed may be half of what it wanted to write.
    """
    with contextlib.suppress(OSError, KeyError):
        path = JobFolder(Path(env["STEPKEEPER_DIR"])).run / f"alive-{int(env['RANK'])}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_SH)
        os.set_inheritable(handle, True)


def _own_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - set(_NO_SIGNALS):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _own_output(output: int, private: Sequence[int]) -> None:
    """Lines reach the log one by one, so that a killed rank leaves its last words."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target, inheritable=True)
    for fd in (nothing, output, *private):
        os.close(fd)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _text(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, "backslashreplace")  # type: ignore[misc]


def _text(fd: int, errors: str) -> io.TextIOWrapper:
    return open(fd, "w", encoding="utf-8", errors=errors, closefd=False, buffering=1)


def _refuse(message: str, code: int) -> NoReturn:
    print(f"stepkeeper: {message}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(code)


def _execute(program: Sequence[str]) -> NoReturn:
    try:
        os.execvp(program[0], list(program))  # noqa: S606
    except FileNotFoundError:
        _refuse(f"cannot run {program[0]}: no such program in {Path.cwd()} or on the PATH", NOT_FOUND)
    except OSError as error:
        _refuse(f"cannot run {program[0]}: {error.strerror}", NOT_RUNNABLE)


def _run_file(program: Sequence[str]) -> int:
    """Run a Python file as `python FILE ARGUMENTS` does."""
    path = Path(program[0])
    if not path.is_file():
        _refuse(f"cannot run {path}: no such file in {Path.cwd()}", NOT_FOUND)
    sys.argv = list(program)
    if not sys.flags.safe_path:  # with it, Python adds no folder of the program, and there is none to replace
        sys.path[0] = str(path.parent.resolve())
    _own_random_numbers()
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        return _uncaught(error, path)
    return 0


def _own_random_numbers() -> None:
    """Forked ranks would share one sequence. `random` and torch see to themselves: the one is seeded anew in every
    fork, the other starts from a fixed seed in every process."""
    legacy = sys.modules.get("numpy.random")
    if legacy is not None:
        legacy.seed()


def _uncaught(error: BaseException, path: Path) -> int:
    """Report as the interpreter would, without the frames of the launcher above the program's own."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename != str(path):
        own = own.tb_next
    _report(error, own)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _report(error: BaseException, own: TracebackType | None) -> None:
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, own)
    else:
        sys.excepthook(type(error), error, own)
