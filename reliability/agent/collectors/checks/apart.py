"""How are several places asked at once so that one which never answers holds up none of the others?

Each place is asked in a fork of its own. One that does not answer in time is killed; one that cannot be killed, since
it hangs in the kernel, is left alone, and that place is not asked again until it is gone.
"""

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import sendable
from reliability.agent.clock import steady
from reliability.agent.collectors.checks.tree import Tree

Ask = Callable[[], Mapping[str, Any]]
GONE_S = 0.2
MOST_ANSWER = 65_536
_PROC = Tree(Path("/proc"))
_START = 19
"""Place of the start time among the fields behind the name in a process's stat."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What each place answered; which are silent; and the processes that hang for them, to be kept."""

    said: Mapping[str, Mapping[str, Any]]
    silent: tuple[str, ...]
    stuck: Mapping[str, str]


class _Fork:
    """One place that is being asked."""

    def __init__(self, ask: Ask) -> None:
        self.handle, write = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            _answer(ask, write)
        os.close(write)
        self._data = b""
        self.said: Mapping[str, Any] | None = None

    def read(self) -> bool:
        """Take what it said; return whether that was all."""
        piece = os.read(self.handle, MOST_ANSWER)
        self._data += piece
        if piece and len(self._data) < MOST_ANSWER:
            return False
        try:
            said = json.loads(self._data)
        except ValueError:
            said = None
        self.said = said if isinstance(said, dict) else {"error": "it ended without an answer"}
        return True

    def kill(self) -> None:
        """Have it end, and listen no more."""
        os.close(self.handle)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def gone(self, end: float) -> bool:
        """Wait until `end` for it to be gone; return whether it is."""
        try:
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if steady() >= end:
                    return False
                select.select([], [], [], 0.005)
        except ChildProcessError:
            pass
        return True


def asked(places: Mapping[str, Ask], *, limit_s: float, stuck: Mapping[str, Any]) -> Answers:
    """Ask all places at once and return what they say within `limit_s`. `stuck`: as kept from the time before."""
    hanging = {place: str(mark) for place, mark in stuck.items() if place in places and _lives(str(mark))}
    forks = {place: _Fork(ask) for place, ask in places.items() if place not in hanging}
    waiting, end = {fork.handle: fork for fork in forks.values()}, steady() + limit_s
    while waiting and (left := end - steady()) > 0:
        readable, _, _ = select.select(list(waiting), [], [], left)
        for handle in readable:
            if waiting[handle].read():
                del waiting[handle]
    for fork in forks.values():
        fork.kill()
    last = steady() + GONE_S
    hanging |= {place: _mark(fork.pid) for place, fork in forks.items() if not fork.gone(last)}
    said = {place: fork.said for place, fork in forks.items() if fork.said is not None}
    return Answers(said, tuple(place for place in places if place not in said), hanging)


def _answer(ask: Ask, write: int) -> None:
    """Answer in this process and end it. Boundary: whatever it raises is its answer."""
    try:
        data = sendable.text_of(dict(ask())).encode()
    except BaseException as error:
        data = sendable.text_of({"error": f"{type(error).__name__}: {error}"[:300]}).encode()
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(write, data) :]
    os._exit(0)


def _mark(pid: int) -> str:
    """Return what tells a process from a later one of the same number."""
    after_name = (_PROC.text(str(pid), "stat") or "").rpartition(")")[2].split()
    return f"{pid} {after_name[_START]}" if len(after_name) > _START else f"{pid} ?"


def _lives(mark: str) -> bool:
    pid = mark.partition(" ")[0]
    if not pid.isdecimal() or _mark(int(pid)) != mark:
        return False
    state = (_PROC.text(pid, "stat") or "").rpartition(")")[2].split()
    return bool(state) and state[0] not in {"Z", "X"}
