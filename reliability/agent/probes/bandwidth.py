"""How fast is the network between this node and a peer? Plain TCP, several rounds, both directions (M4).

The serving side proves nothing about itself and serves only who knows the token. In each round the measuring side
sends N bytes and waits for the receiver's word that all have come, then receives N bytes and times that; the slower
direction is the round's result, because a training step waits for it. A round that does not end in time counts with
what it achieved: a very slow network is a measurement, not an error.
"""

import contextlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from reliability.agent.probes import request

CHUNK = memoryview(bytes(256 * 1024))
CONNECT_S = 2.0
HEADER_LIMIT = 4096
HEADER_LIMIT_S = 5.0
MOST_CONNECTIONS = 256
MOST_ROUNDS = 1000
_LENGTH = struct.Struct("!Q")
_DONE = b"\x06"


def serve(wanted: Mapping[str, Any]) -> None:
    """Listen until the limit; each connection has a thread of its own, and there are only so many at once."""
    end = time.monotonic() + float(wanted["limit_s"])
    places = threading.BoundedSemaphore(MOST_CONNECTIONS)
    with socket.create_server(("", 0), backlog=64) as listener:
        request.answer({"port": listener.getsockname()[1]})
        while (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                if places.acquire(blocking=False):
                    threading.Thread(target=_serve_one, args=(connection, wanted, end, places), daemon=True).start()
                else:
                    connection.close()


def _serve_one(
    connection: socket.socket, wanted: Mapping[str, Any], end: float, places: threading.BoundedSemaphore
) -> None:
    try:
        with connection, contextlib.suppress(OSError, EOFError, ValueError):
            _serve_known(connection, wanted, end)
    finally:
        places.release()


def _serve_known(connection: socket.socket, wanted: Mapping[str, Any], end: float) -> None:
    """Serve who knows the token. Raises EOFError, OSError and ValueError for whatever else a stranger may send."""
    header = _header(connection, min(end, time.monotonic() + HEADER_LIMIT_S))
    if not hmac.compare_digest(str(header.get("token", "")).encode(), str(wanted["token"]).encode()):
        return
    connection.settimeout(max(end - time.monotonic(), 0.1))
    count = min(_number(header, "bytes"), int(wanted["bytes"]))
    connection.sendall(_LENGTH.pack(count))
    for _ in range(min(_number(header, "rounds"), MOST_ROUNDS)):
        _receive(connection, count)
        connection.sendall(_DONE)
        _send(connection, count)


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is no number")
    return value


def measure(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Measure to one peer after the other and return the rounds of each."""
    share_s = float(wanted["limit_s"]) * 0.9 / max(len(wanted["peers"]), 1)
    pairs, troubles = [], []
    for peer in wanted["peers"]:
        rounds, trouble = _measure_one(peer, wanted, time.monotonic() + share_s)
        pairs.append({"node": peer["node"], "bytes_per_s": rounds})
        if trouble:
            troubles.append(f"{peer['node']}: {trouble}")
    if not any(pair["bytes_per_s"] for pair in pairs):
        return {"error": "no peer could be measured: " + "; ".join(troubles)}
    return {"pairs": pairs, "troubles": troubles}


def _measure_one(peer: Mapping[str, Any], wanted: Mapping[str, Any], end: float) -> tuple[list[float], str]:
    rounds: list[float] = []
    try:
        with socket.create_connection((peer["address"], peer["port"]), timeout=CONNECT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(max(end - time.monotonic(), 0.1))
            header = {"token": wanted["token"], "bytes": wanted["bytes"], "rounds": wanted["rounds"]}
            connection.sendall(json.dumps(header).encode() + b"\n")
            count = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
            for _ in range(int(wanted["rounds"])):
                up, down = _timed_send(connection, count, end), 0.0
                if time.monotonic() < end:
                    down = _timed_receive(connection, count, end)
                rounds.append(min(up, down) if down else up)
                if time.monotonic() >= end:
                    break
    except (OSError, EOFError) as error:
        return rounds, str(error) or type(error).__name__
    return rounds, ""


def _timed_send(connection: socket.socket, count: int, end: float) -> float:
    began, sent = time.monotonic(), 0
    try:
        while sent < count:
            connection.settimeout(max(end - time.monotonic(), 0.01))
            sent += connection.send(CHUNK[: count - sent])
        _exactly(connection, len(_DONE))
    except TimeoutError:
        pass
    return sent / max(time.monotonic() - began, 1e-9)


def _timed_receive(connection: socket.socket, count: int, end: float) -> float:
    began, received = time.monotonic(), 0
    try:
        while received < count:
            connection.settimeout(max(end - time.monotonic(), 0.01))
            received += _piece(connection, count - received)
    except TimeoutError:
        pass
    return received / max(time.monotonic() - began, 1e-9)


def _header(connection: socket.socket, end: float) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(max(end - time.monotonic(), 0.001))
        data += _exactly(connection, 1)
        if len(data) > HEADER_LIMIT:
            raise ValueError("header too long")
    try:
        header = json.loads(data)
    except RecursionError as error:
        raise ValueError("header nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("header is no object")
    return header


def _receive(connection: socket.socket, count: int) -> None:
    while count:
        count -= _piece(connection, count)


def _send(connection: socket.socket, count: int) -> None:
    while count:
        count -= connection.send(CHUNK[:count])


def _piece(connection: socket.socket, most: int) -> int:
    piece = connection.recv(min(most, len(CHUNK)))
    if not piece:
        raise EOFError("the peer closed the connection (is the token right?)")
    return len(piece)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError("the peer closed the connection (is the token right?)")
        data += piece
    return data


def main() -> None:
    """Serve or measure, as asked."""
    mode, wanted = request.take(("serve", "measure"))
    if mode == "serve":
        serve(wanted)
    else:
        request.answer(measure(wanted))


if __name__ == "__main__":
    main()
