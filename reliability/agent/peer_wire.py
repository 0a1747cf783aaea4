"""How do two nodes talk about one shard? Both sides of a short exchange over TCP (docs/protocol.md section 5).

The serving side says a number used once; the asking side names a shard and proves, by an HMAC with the token that the
server gave both in signed orders, that it may have it. The token itself never travels between them. What comes back
is a head in JSON, the shard's commit record, and its bytes. Every line and every wait has a limit.
"""

import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

LINE_LIMIT = 4096
LINE_LIMIT_S = 5.0
IDLE_S = 10.0
PIECE_BYTES = 2**20


class PeerGone(OSError):
    """The other side closed the connection, was silent for too long, or said what nobody can read."""


class Line:
    """One connection with a time at which it ends, whatever happens. Raises PeerGone for all that goes wrong.

    `pace` is called with the bytes that came, piece by piece, and may wait: the other side must go on being heard.
    """

    def __init__(self, connection: socket.socket, *, end: float, pace: Callable[[int], object] = int) -> None:
        self._connection = connection
        self._end = end
        self._pace = pace

    def say(self, message: Mapping[str, Any]) -> None:
        """Send one object as a line."""
        self.send(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def send(self, content: bytes | memoryview) -> None:
        """Send bytes; each piece must be taken within the idle limit."""
        left = memoryview(content)
        while left:
            with _gone():
                self._connection.settimeout(self._patience(IDLE_S))
                left = left[self._connection.send(left[:PIECE_BYTES]) :]

    def hear(self) -> dict[str, Any]:
        """Return the object of one line."""
        limit, text = min(self._end, time.monotonic() + LINE_LIMIT_S), bytearray()
        while not text.endswith(b"\n"):
            text += self._received(1, max(limit - time.monotonic(), 0.001))
            if len(text) > LINE_LIMIT:
                raise PeerGone("the other side sent a line that is too long")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PeerGone("the other side sent a line that is no JSON") from error
        if not isinstance(message, dict):
            raise PeerGone("the other side sent a line that is no object")
        return message

    def take(self, count: int) -> bytearray:
        """Return exactly so many bytes."""
        content = bytearray(count)
        self.fill(memoryview(content))
        return content

    def fill(self, view: memoryview) -> None:
        """Take exactly as many bytes as there is room for."""
        count, filled = len(view), 0
        while filled < count:
            with _gone():
                self._connection.settimeout(self._patience(IDLE_S))
                got = self._connection.recv_into(view[filled : filled + PIECE_BYTES])
            if not got:
                raise PeerGone(f"the other side closed the connection, {count - filled} bytes before the end")
            filled += got
            self._pace(got)

    def _received(self, count: int, limit_s: float) -> bytes:
        with _gone():
            self._connection.settimeout(limit_s)
            piece = self._connection.recv(count)
        if not piece:
            raise PeerGone("the other side closed the connection (is the token right?)")
        return piece

    def _patience(self, most_s: float) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise PeerGone("the time for it is over")
        return min(left, most_s)


class _gone:
    """Turns errors of a socket into PeerGone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, PeerGone):
            silent = isinstance(error, TimeoutError)
            raise PeerGone("the other side was silent for too long" if silent else str(error)) from error


def proof(token: str, nonce: str, *, job: str, epoch: int, tier: str, key: str, start: int) -> str:
    """Return what only who knows the token can say about this request and this nonce."""
    text = json.dumps([nonce, job, epoch, tier, key, start]).encode()
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()
