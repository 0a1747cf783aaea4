"""The kernel's lines in the system's journal, as `journalctl -o json --follow` gives them; the place is its cursor.

For agents that may not read /dev/kmsg but are members of the journal's group.
"""

import json
import os
import subprocess
import time
from typing import Any

from reliability.agent.collectors.sources import OLD_S, Look, Place, SourceLost
from reliability.domain.faults.streams import Lines

PROGRAM = "journalctl"
CHUNK_BYTES = 1 << 18
_KERNEL = "0"


class Journal:
    """What a journalctl that follows the kernel's lines says. `programs`: whether lines of programs count."""

    def __init__(self, place: Place | None, *, program: str = PROGRAM, programs: bool = True) -> None:
        self._programs = programs
        self._cursor = "" if place is None else str(place.get("cursor") or "")
        self._since = time.time() if place is None else float(place.get("since") or 0.0)
        from_there = f"--after-cursor={self._cursor}" if self._cursor else f"--since=@{self._since:.6f}"
        argv = [program, "_TRANSPORT=kernel", "--output=json", "--all", "--follow", "--no-tail", from_there]
        try:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise SourceLost(f"{program} cannot be run: {error.strerror}.") from error
        self._out = self._child.stdout.fileno() if self._child.stdout else -1
        os.set_blocking(self._out, False)
        self._lines = Lines()

    @property
    def place(self) -> Place:
        """The cursor of the last line that was read, "" before the first: then the moment of the first start counts."""
        return {"cursor": self._cursor, "since": self._since}

    def handle(self) -> int | None:
        """Return the pipe."""
        return self._out

    def look(self) -> Look:
        """Return the lines that came."""
        look = Look()
        try:
            chunk = os.read(self._out, CHUNK_BYTES)
        except BlockingIOError:
            return look
        if not chunk:
            raise SourceLost(f"{PROGRAM} ended (exit code {self._child.wait(timeout=5)}).")
        for line in self._lines.feed(chunk).split(b"\n"):
            self._take(line, look)
        look.more = len(chunk) == CHUNK_BYTES
        return look

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        if self._child.stdout:
            self._child.stdout.close()

    def _take(self, line: bytes, look: Look) -> None:
        entry = _entry(line)
        if entry is None:
            return
        self._cursor = str(entry.get("__CURSOR") or self._cursor)
        if not self._programs and str(entry.get("SYSLOG_FACILITY", _KERNEL)) != _KERNEL:
            return
        message = _message(entry.get("MESSAGE"))
        if message:
            (look.old_lines if _is_old(entry) else look.lines).append(message.replace(b"\n", b" "))


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _message(value: object) -> bytes:
    """Return a message; one that is no text comes as a list of its bytes, a very long one as null."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, list):
        return bytes(each for each in value if isinstance(each, int) and 0 <= each <= 255)
    return b""


def _is_old(entry: dict[str, Any]) -> bool:
    at = str(entry.get("__REALTIME_TIMESTAMP") or "")
    return at.isdecimal() and time.time() - int(at) / 1e6 > OLD_S
