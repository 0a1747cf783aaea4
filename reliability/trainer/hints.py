"""How does a process of the job nudge its agent without ever waiting for it?

A hint is one JSON datagram. It only makes things faster: whatever it says is also in the job's folder, and the
agent looks there by itself.
"""

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

_LONGEST_ADDRESS = 107


class Hints:
    """Sends hints to the agent's socket; an agent that is away, slow or gone is never an error."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, kind: str, **fields: Any) -> bool:
        """Send one hint and return whether the agent's socket took it."""
        body = json.dumps({"t": kind, **fields}).encode()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
            agent.setblocking(False)
            self._send(agent, body)
            return True
        return False

    def _send(self, agent: socket.socket, body: bytes) -> None:
        """Address the socket through its folder when its path is too long for a socket address."""
        if len(os.fsencode(self._path)) <= _LONGEST_ADDRESS:
            agent.sendto(body, os.fspath(self._path))
            return
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            agent.sendto(body, f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
