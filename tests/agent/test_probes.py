"""Probes measure what is there; one that crashes or hangs has failed and takes nothing with it."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.probes.bandwidth import _serve_one
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

SDC = {"seed": 7, "rounds": 4, "size": 64, "limit_s": 30}


class _Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def flip_bit(pid: int, address: int) -> None:
    """Flip one bit in another process's memory, as a sick memory cell would."""
    libc = ctypes.CDLL(None, use_errno=True)
    byte = (ctypes.c_ubyte * 1)()
    here, there = _Piece(ctypes.addressof(byte), 1), _Piece(address, 1)
    for move, flip in ((libc.process_vm_readv, 0), (libc.process_vm_writev, 1)):
        byte[0] ^= flip
        moved = move(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        assert moved == 1, os.strerror(ctypes.get_errno())


def notes(agent: AgentProcess) -> list[dict[str, Any]]:
    log = agent.data / "log" / "probe-sdc.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_healthy_machine_computes_the_same_digests_each_time(ingest: Ingest, agent: AgentProcess) -> None:
    first = ingest.done("probe_sdc", payload=SDC)
    second = ingest.done("probe_sdc", payload=SDC)
    assert first["digests"] == second["digests"]
    assert len(set(first["digests"])) == 1
    assert len(first["digests"]) == SDC["rounds"]
    assert first["cpu_model"] == second["cpu_model"]
    other = ingest.done("probe_sdc", payload={**SDC, "seed": 8})
    assert other["digests"][0] != first["digests"][0]


def test_a_bit_flipped_from_outside_changes_the_digests(ingest: Ingest, agent: AgentProcess) -> None:
    good = ingest.done("probe_sdc", payload=SDC)["digests"][0]
    order = ingest.order("probe_sdc", payload={**SDC, "rounds": 40})
    started = until(lambda: notes(agent)[1:])[0]
    flip_bit(started["pid"], started["address"] + started["bytes"] // 2)
    assert ingest.result(order)["result"]["digests"][-1] != good


def test_a_probe_that_does_not_end_is_killed_and_reported_as_such(ingest: Ingest, agent: AgentProcess) -> None:
    order = ingest.order("probe_sdc", payload={**SDC, "size": 2048, "rounds": 100, "limit_s": 1})
    outcome = ingest.result(order)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "probe_timeout")
    until(lambda: not Path(f"/proc/{notes(agent)[0]['pid']}").exists())


def test_a_probe_that_is_killed_is_reported_as_crashed(ingest: Ingest, agent: AgentProcess) -> None:
    order = ingest.order("probe_sdc", payload={**SDC, "rounds": 100, "size": 512})
    os.kill(until(lambda: notes(agent))[0]["pid"], signal.SIGKILL)
    outcome = ingest.result(order)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "probe_crashed")


def test_bandwidth_to_a_peer_is_measured_round_by_round(ingest: Ingest, agent: AgentProcess) -> None:
    port = ingest.done("probe_serve", payload={"token": "t", "limit_s": 20, "bytes": 2**20})["port"]
    peers = [{"node": "b", "address": "127.0.0.1", "port": port}, {"node": "c", "address": "127.0.0.1", "port": 9}]
    request = {"peers": peers, "token": "t", "bytes": 2**20, "rounds": 3, "limit_s": 10}
    pairs = ingest.done("probe_measure", payload=request)["pairs"]
    assert [pair["node"] for pair in pairs] == ["b", "c"]
    assert len(pairs[0]["bytes_per_s"]) == 3
    assert min(pairs[0]["bytes_per_s"]) > 10**6
    assert pairs[1]["bytes_per_s"] == [], "a peer that is away is no measurement"


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_measurement_without_the_right_token_is_not_served(ingest: Ingest, agent: AgentProcess, token: str) -> None:
    port = ingest.done("probe_serve", payload={"token": "t", "limit_s": 20, "bytes": 2**20})["port"]
    peers = [{"node": "b", "address": "127.0.0.1", "port": port}]
    order = ingest.order(
        "probe_measure", payload={"peers": peers, "token": token, "bytes": 2**20, "rounds": 3, "limit_s": 5}
    )
    outcome = ingest.result(order)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "probe_crashed")
    assert "token" in outcome["error"]["message"]


def test_a_stop_does_not_wait_behind_long_probes(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.done("start", job="lm", epoch=1, payload=agent.start_payload())
    long = [ingest.order("probe_sdc", payload={**SDC, "rounds": 100, "size": 512}) for _ in range(9)]
    stopped = ingest.done("stop", job="lm", epoch=2, payload={"grace_s": 0}, limit_s=5)
    assert stopped["stopped"] == [0]
    assert not {body["order"] for body in ingest.of_kind("order_result")} & set(long)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\n",
        b"[]\n",
        b"7\n",
        b'{"token": "t"}\n',
        b'{"token": "t", "bytes": null, "rounds": 1}\n',
        b"[" * 4000 + b"\n",
        b'{"token": "t", "bytes": -5, "rounds": 1}\n',
        b"x" * 5000,
        b'{"token": 3}\n',
        b"\xff\xfe\n",
    ],
)
def test_garbage_from_the_network_is_closed_without_a_word(garbage: bytes) -> None:
    ours, theirs = socket.socketpair()
    places = threading.BoundedSemaphore(1)
    places.acquire()
    thread = threading.Thread(
        target=_serve_one, args=(theirs, {"token": "t", "bytes": 10}, time.monotonic() + 60, places)
    )
    thread.start()
    with ours:
        ours.sendall(garbage)
        ours.shutdown(socket.SHUT_WR)
        ours.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert ours.recv(10) == b""
    thread.join(5)
    assert places.acquire(blocking=False), "the place is free again"
