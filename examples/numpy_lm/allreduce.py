"""Sums arrays over all ranks by TCP, always in the order of the ranks, so that every run gives the same bits.

Rank 0 listens at MASTER_ADDR:MASTER_PORT, takes in everybody's array, adds them up from rank 0 to the last and sends
the sum back. That is one busy node and fine for a handful of ranks; real jobs use a collective library.
"""

import json
import socket
import struct
import time

import numpy as np

_LENGTH = struct.Struct("<Q")
_LONGEST_GREETING = 4096


class TurnedAway(ConnectionError):
    """Rank 0 runs something else."""


class RankGroup:
    """The group of all ranks. `greeting` must be the same on all of them (world size, attempt, data, options)."""

    def __init__(
        self, *, rank: int, world_size: int, address: str, port: int, greeting: dict, timeout_s: float
    ) -> None:
        self._rank = rank
        self._timeout_s = timeout_s
        self._peers: dict[int, socket.socket] = {}
        if world_size > 1 and rank == 0:
            self._gather_peers(world_size, port, greeting)
        elif world_size > 1:
            self._peers[0] = self._reach_master(address, port, greeting)

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of `array` over all ranks. Raises ConnectionError when a rank is lost or silent."""
        if not self._peers:
            return array
        if self._rank:
            self._send(0, array.tobytes())
            return np.frombuffer(self._receive(0), dtype=array.dtype).reshape(array.shape)
        total = array.copy()
        for peer in sorted(self._peers):
            total += np.frombuffer(self._receive(peer), dtype=array.dtype).reshape(array.shape)
        result = total.tobytes()
        for peer in sorted(self._peers):
            self._send(peer, result)
        return total

    def close(self) -> None:
        """Leave the group."""
        for peer in self._peers.values():
            peer.close()

    def _gather_peers(self, world_size: int, port: int, greeting: dict) -> None:
        deadline = time.monotonic() + self._timeout_s
        with self._listen(port, deadline) as listener:
            while len(self._peers) < world_size - 1:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    connection, _address = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, world_size)) - set(self._peers))
                    raise ConnectionError(f"ranks {missing} did not come within {self._timeout_s:g} s") from None
                self._welcome(connection, greeting)

    def _listen(self, port: int, deadline: float) -> socket.socket:
        """The port may still belong to a process of the attempt before, which is just going away."""
        while True:
            try:
                return socket.create_server(("", port), backlog=128)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ConnectionError(f"cannot listen on port {port}: {error.strerror}") from error
                time.sleep(0.005)

    def _welcome(self, connection: socket.socket, greeting: dict) -> None:
        """Take in a rank that runs the same thing; anybody else is turned away and does not disturb."""
        connection.settimeout(min(5.0, self._timeout_s))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            theirs = json.loads(_receive(connection, limit=_LONGEST_GREETING))
            rank = int(theirs.pop("rank"))
            if theirs != greeting or rank in self._peers:
                _send(connection, b"no")
                raise ValueError(f"{theirs} is not {greeting}")
            _send(connection, b"ok")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            print(f"turned a connection away: {error}", flush=True)
            connection.close()
            return
        connection.settimeout(self._timeout_s)
        self._peers[rank] = connection

    def _reach_master(self, address: str, port: int, greeting: dict) -> socket.socket:
        """Rank 0 may start a moment later, and one of the attempt before may still be there: ask again."""
        deadline = time.monotonic() + self._timeout_s
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                return self._ask_to_join(address, port, greeting)
            except OSError as error:
                if not isinstance(problem, TurnedAway):  # says more than that nobody listens any more
                    problem = error
            time.sleep(0.2 if isinstance(problem, TurnedAway) else 0.005)
        raise ConnectionError(f"rank 0 at {address}:{port} did not let rank {self._rank} in: {problem}") from problem

    def _ask_to_join(self, address: str, port: int, greeting: dict) -> socket.socket:
        connection = socket.create_connection((address, port), timeout=min(1.0, self._timeout_s))
        try:
            connection.settimeout(self._timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _send(connection, json.dumps({**greeting, "rank": self._rank}).encode())
            if _receive(connection, limit=_LONGEST_GREETING) != b"ok":
                raise TurnedAway("it runs another attempt, other options or other data")
        except OSError:
            connection.close()
            raise
        return connection

    def _send(self, peer: int, data: bytes) -> None:
        try:
            _send(self._peers[peer], data)
        except OSError as error:
            raise self._lost(peer, error) from error

    def _receive(self, peer: int) -> bytearray:
        try:
            return _receive(self._peers[peer])
        except OSError as error:
            raise self._lost(peer, error) from error

    def _lost(self, peer: int, error: OSError) -> ConnectionError:
        if isinstance(error, TimeoutError):
            return ConnectionError(f"rank {self._rank}: nothing from rank {peer} for {self._timeout_s:g} s")
        return ConnectionError(f"rank {self._rank}: connection closed by peer, rank {peer}: {error}")


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket, limit: int = 1 << 32) -> bytearray:
    length = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    if length > limit:
        raise ConnectionError(f"a message of {length} bytes is too long")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while len(view):
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("end of stream")
        view = view[count:]
    return data
