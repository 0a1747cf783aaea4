"""How does a launcher or a trainer nudge the agent? By a datagram to a socket in the job's folder.

A hint may be lost, forged or late without harm: the truth is in the files, and the agent looks at them anyway.
"""

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

_LONGEST_PATH = 100
_LONGEST_HINT = 4096


class HintSocket:
    """Listens for hints of one job. `wait` returns early when one came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        path.unlink(missing_ok=True)
        with _short(path) as address:
            self._socket.bind(address)
        # Ranks in a container may run as another user than the agent.
        path.chmod(0o666)

    def wait(self, limit_s: float) -> bool:
        """Wait for a hint, a wake-up or the limit; return whether one came. What a hint says is not used."""
        sources: list[int] = [self._socket.fileno(), self._wake_reader]
        readable, _, _ = select.select(sources, [], [], limit_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 512):
                pass
        came = False
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(_LONGEST_HINT):
                came = True
        return came or bool(readable)

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b"w")

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._socket.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield an address for a path of any length: the kernel takes 107 bytes, so a long one goes through its folder."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
