"""What one node reads from another is what the order named, whole and verified, or it is not used at all."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.peer_server import MOST_UNPROVEN, PeerServer
from reliability.agent.peer_serving import PARTNERS, PeerServing
from reliability.agent.peer_store import Asked, Peer, PeerShard
from reliability.agent.peer_wire import LINE_LIMIT_S, proof
from reliability.errors import CopyMissing, DigestMismatch, InvalidInput, TierUnreachable
from reliability.tiers.shards import Shard
from tests.agent.ingest import until
from tests.agent.shardfiles import commit, damage
from tests.agent.stamped import JOB
from tests.trainer.test_parts import saved

TOKEN = "t" * 32
EPOCH = 3
SHARD = Shard(1, 40, 0)
CONTENT = b"weights" * 200_000


class Serving:
    """A node that serves, with folders of its own."""

    def __init__(self, root: Path) -> None:
        self.memory, self.ssd = root / "memory", root / "ssd"
        self.peers = PeerServing(address="127.0.0.1", memory_dir=self.memory, ssd_dir=self.ssd, log_dir=root / "log")

    def folder(self, tier: str) -> Path:
        return {"memory": self.memory / JOB / "mem", "ssd": self.ssd / JOB, "partner": self.memory / PARTNERS / JOB}[
            tier
        ]

    def serve(self, *keys: tuple[str, str], limit_s: float = 20.0, epoch: int = EPOCH, hold: bool = True) -> int:
        shards = [{"tier": tier, "key": key} for tier, key in keys]
        payload = {"token": TOKEN, "limit_s": limit_s, "hold": hold, "shards": shards}
        return int(self.peers.serve(payload, job=JOB, epoch=epoch)["port"])


@pytest.fixture
def node(folder: Path) -> Iterator[Serving]:
    node = Serving(folder)
    yield node
    node.peers.stop()


def fetch(port: int, digest: str, *, key: str = SHARD.flat_key, tier: str = "ssd", **given: Any) -> bytes:
    limit_s, token = given.pop("limit_s", 10.0), given.pop("token", TOKEN)
    asked = Asked(**{"job": JOB, "epoch": EPOCH, "tier": tier, "key": key, "digest": digest, **given}, limit_s=limit_s)
    shard = PeerShard(Peer(node="node-b", address="127.0.0.1", port=port, token=token), asked)
    with shard.opened() as chunks:
        return b"".join(map(bytes, chunks))


@pytest.mark.parametrize("tier", ["memory", "ssd", "partner"])
def test_a_shard_is_read_whole_from_another_node(node: Serving, tier: str) -> None:
    copy = commit(node.folder(tier), SHARD, CONTENT, job=JOB)
    port = node.serve((tier, SHARD.flat_key))
    assert fetch(port, copy["digest"], tier=tier) == CONTENT


def test_a_shard_of_a_trainer_is_checked_chunk_by_chunk_and_a_flipped_bit_ends_it_early(
    node: Serving, tmp_path: Path
) -> None:
    record = saved(node.memory / JOB, 0)
    key, digest = record.stem, json.loads(record.read_text())["digest"]
    whole = record.with_suffix(".snap").read_bytes()
    assert fetch(node.serve(("memory", key)), digest, tier="memory", key=key) == whole
    damage(str(record.with_suffix(".snap")))
    with pytest.raises(DigestMismatch, match="chunk 0 is not what was committed"):
        fetch(node.serve(("memory", key)), digest, tier="memory", key=key)


def test_who_does_not_know_the_token_is_told_nothing(node: Serving) -> None:
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    port = node.serve(("ssd", SHARD.flat_key))
    with pytest.raises(TierUnreachable, match="closed the connection"):
        fetch(port, copy["digest"], token="g" * 32)


def test_a_proof_that_was_overheard_opens_nothing_a_second_time(node: Serving) -> None:
    commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    port = node.serve(("ssd", SHARD.flat_key))
    about = {"job": JOB, "epoch": EPOCH, "tier": "ssd", "key": SHARD.flat_key, "start": 0}
    nonce = said(port)
    old = proof(TOKEN, nonce, **about)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, connection.makefile("rwb") as stream:
        assert json.loads(stream.readline())["nonce"] != nonce
        stream.write(json.dumps({"tier": "ssd", "key": SHARD.flat_key, "from": 0, "proof": old}).encode() + b"\n")
        stream.flush()
        assert stream.readline() == b""


def said(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, connection.makefile("rb") as stream:
        return str(json.loads(stream.readline())["nonce"])


@pytest.mark.parametrize("given", [{"epoch": EPOCH + 1}, {"job": "other"}])
def test_a_proof_for_another_attempt_or_job_opens_nothing(node: Serving, given: dict[str, Any]) -> None:
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    port = node.serve(("ssd", SHARD.flat_key))
    with pytest.raises(TierUnreachable):
        fetch(port, copy["digest"], **given)


@pytest.mark.parametrize(("tier", "key"), [("ssd", "e1-s40-r1"), ("memory", "e1-s40-r0"), ("ssd", "../../secret")])
def test_only_the_shards_that_the_order_names_are_served(node: Serving, tier: str, key: str) -> None:
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    commit(node.folder("ssd"), Shard(1, 40, 1), CONTENT, job=JOB)
    with pytest.raises(TierUnreachable, match="not among what the order lets others read"):
        fetch(node.serve(("ssd", SHARD.flat_key)), copy["digest"], tier=tier, key=key)


def test_a_shard_that_is_not_there_any_more_is_missing_and_not_unreachable(node: Serving) -> None:
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    Path(copy["path"]).unlink()
    with pytest.raises(CopyMissing, match="node-b"):
        fetch(node.serve(("ssd", SHARD.flat_key)), copy["digest"])


def test_another_content_under_the_name_is_refused_before_its_bytes_come(node: Serving) -> None:
    commit(node.folder("ssd"), SHARD, b"something else", job=JOB)
    with pytest.raises(DigestMismatch, match="wanted is"):
        fetch(node.serve(("ssd", SHARD.flat_key)), "blake2b:" + 32 * "0")


def test_a_newer_attempt_ends_what_was_served_for_an_older_one(node: Serving) -> None:
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    old = node.serve(("ssd", SHARD.flat_key))
    node.serve(("ssd", SHARD.flat_key), epoch=EPOCH + 1)
    until(lambda: not listens(old), 5)
    with pytest.raises(TierUnreachable):
        fetch(old, copy["digest"])


def test_serving_ends_with_its_time(node: Serving) -> None:
    commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    port = node.serve(("ssd", SHARD.flat_key), limit_s=0.2)
    until(lambda: not listens(port), 5)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("shards", "field"),
    [([{"tier": "ssd", "key": "x"}], "key"), ([{"tier": "storage", "key": "e1-s1-r0"}], "tier")],
)
def test_an_order_that_names_no_shard_is_refused_by_field(node: Serving, shards: list[Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        node.peers.serve({"token": TOKEN, "limit_s": 5, "shards": shards}, job=JOB, epoch=EPOCH)


def test_a_token_that_can_be_guessed_is_refused(node: Serving) -> None:
    with pytest.raises(InvalidInput, match="too short"):
        node.peers.serve({"token": "x", "limit_s": 5, "shards": []}, job=JOB, epoch=EPOCH)


def played(answer: Callable[[socket.socket], object]) -> int:
    """Play the other node: one connection, answered by hand. Returns the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


HOSTILE = {
    "silence": lambda connection: connection.recv(1),
    "no JSON": lambda connection: connection.sendall(b"hello\n"),
    "no object": lambda connection: connection.sendall(b"[]\n"),
    "an endless line": lambda connection: connection.sendall(b"x" * 100_000),
    "a nested line": lambda connection: connection.sendall(b"[" * 4000 + b"\n"),
    "the end": lambda connection: None,
    "a head without sense": lambda connection: connection.sendall(b'{"nonce": "n"}\n{"size_bytes": "much"}\n'),
    "a record of a terabyte": lambda connection: connection.sendall(
        b'{"nonce": "n"}\n{"size_bytes": 1, "record_bytes": 1099511627776}\n'
    ),
    "a record that is none": lambda connection: connection.sendall(
        b'{"nonce": "n"}\n{"size_bytes": 1, "record_bytes": 2}\n[]'
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_the_other_side_says_ends_soon_and_as_an_error_of_a_tier(what: str) -> None:
    began = time.monotonic()
    with pytest.raises((TierUnreachable, CopyMissing)):
        fetch(played(HOSTILE[what]), "blake2b:" + 32 * "0", limit_s=1.0)
    assert time.monotonic() - began < 4


def test_a_transfer_that_stops_half_way_is_an_error_and_no_shard(node: Serving) -> None:
    """The record is right and the bytes end too early."""
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    record = Path(copy["path"]).with_suffix(".json").read_bytes()
    head = json.dumps({"size_bytes": len(CONTENT), "record_bytes": len(record)}).encode()

    def answer(connection: socket.socket) -> None:
        connection.sendall(b'{"nonce": "n"}\n' + head + b"\n" + record + CONTENT[:1000])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(4096)

    with pytest.raises(TierUnreachable, match="before the end"):
        fetch(played(answer), copy["digest"])


def test_silent_connections_take_nobodys_place(node: Serving) -> None:
    """However many are open and say nothing, who proves the token is served at once."""
    copy = commit(node.folder("ssd"), SHARD, CONTENT, job=JOB)
    port = node.serve(("ssd", SHARD.flat_key))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(40)]
        began = time.monotonic()
        assert fetch(port, copy["digest"]) == CONTENT
        assert time.monotonic() - began < LINE_LIMIT_S
        assert len(silent) == 40


def test_the_address_with_most_silent_connections_loses_its_oldest() -> None:
    wanted = {"token": TOKEN, "job": JOB, "epoch": 1, "hold": True, "shards": [], "ranks": [], "limit_s": 5}
    server = PeerServer({**wanted, "memory_dir": "/m", "partner_dir": "/p", "ssd_dir": "/s"})
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(_both_ends()) for _ in range(MOST_UNPROVEN + 1)]
        addresses = ["10.0.0.1", *["10.0.0.2"] * (MOST_UNPROVEN - 1), "10.0.0.3"]
        for (here, _there), address in zip(pairs, addresses, strict=True):
            server._let_in(here, address)
        ended = [number for number, (_here, there) in enumerate(pairs) if _is_over(there)]
    assert ended == [1]


@contextlib.contextmanager
def _both_ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        yield here, there


def _is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def test_nobody_listens_and_that_is_told_with_the_name_of_the_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TierUnreachable, match="node-b"):
        fetch(port, "blake2b:" + 32 * "0")
