"""How does a launcher or a trainer nudge the agent? By a datagram to a socket in the job's folder.

A hint may be lost, forged or late without harm: the truth is in the files, and the agent looks at them anyway. Only a
snapshot that could not be taken leaves no file; that hint is all there is, and what it says is passed on.
"""

import contextlib
import json
import os
import select
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reliability.tiers import opening

_LONGEST_HINT = 8192
_MOST_AT_ONCE = 1000


class HintSocket:
    """Listens for the hints of one job."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with opening.opened_folder(path.parent) as folder:
            _bind(self._socket, folder, path.name)

    def wait(self, limit_s: float) -> list[dict[str, Any]]:
        """Wait for a hint, a wake-up or the limit; return the hints that came and could be read."""
        sources: list[int] = [self._socket.fileno(), self._wake_reader]
        select.select(sources, [], [], limit_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 512):
                pass
        return [hint for hint in map(_parsed, self._datagrams()) if hint]

    def _datagrams(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_AT_ONCE):
                yield self._socket.recv(_LONGEST_HINT)

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b"w")

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._socket.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        with contextlib.suppress(OSError):
            opening.remove(self._path)


def _parsed(datagram: bytes) -> dict[str, Any]:
    try:
        hint = json.loads(datagram)
    except ValueError:
        return {}
    return hint if isinstance(hint, dict) else {}


def _bind(listener: socket.socket, folder: int, name: str) -> None:
    """Bind in an opened folder: the container cannot turn it elsewhere, and its path may have any length."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    listener.bind(f"/proc/self/fd/{folder}/{name}")
    made = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISSOCK(os.fstat(made).st_mode):
            # Ranks in a container may run as another user than the agent.
            Path(f"/proc/self/fd/{made}").chmod(0o666)
    finally:
        os.close(made)
