"""How does a node read a shard that lies on another node, checked chunk by chunk while it comes?

The digest wanted is that of a signed order. The record that the other node sends names the digest of each chunk, which
must make the wanted one; a chunk that is not what it says ends the transfer at once, long before the end.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reliability.agent.peer_wire import Line, PeerGone, proof
from reliability.errors import CopyMissing, DigestMismatch, TierUnreachable
from reliability.tiers import digests, records, shards
from reliability.tiers.shards import Shard

CONNECT_S = 2.0
_HINT = "Nothing to do: the next source is used. Look at the network between the nodes if it happens again."
_ANSWERS = {"copy_missing": CopyMissing, "corrupt": CopyMissing, "digest_mismatch": DigestMismatch}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Where another node serves shards of a job, and what proves that this node may read them."""

    node: str
    address: str
    port: int
    token: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One shard on another node: the digest its bytes must have, and how long all of it may take in seconds.

    A side that is silent for peer_wire.IDLE_S ends it sooner.
    """

    job: str
    epoch: int
    tier: str
    key: str
    digest: str
    limit_s: float


class PeerShard:
    """One shard as it is read from a peer. Raises CopyMissing, DigestMismatch, TierUnreachable."""

    def __init__(self, peer: Peer, asked: Asked, *, pace: Callable[[int], object] = int) -> None:
        self._peer = peer
        self._asked = asked
        self._pace = pace
        self.record: dict[str, Any] = {}

    def listed(self) -> list[dict[str, Any]]:
        """Return what the other node says is newest of the ranks it serves; `key` is "newest" then."""
        end = time.monotonic() + self._asked.limit_s
        with self._connected(end) as line:
            head = self._head(line)
            return _items(line.take(_length(head)))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Iterator[memoryview]]:
        """Yield the chunks of the shard in order; its commit record is in `record` from then on.

        A chunk lies where the one before lay, so that no memory is touched for the first time: use it before the next.
        """
        with self._connected(time.monotonic() + self._asked.limit_s) as line:
            size = self._ask(line)
            yield self._chunks(line, size)

    @contextlib.contextmanager
    def _connected(self, end: float) -> Iterator[Line]:
        place = (self._peer.address, self._peer.port)
        try:
            with socket.create_connection(place, timeout=min(CONNECT_S, self._asked.limit_s)) as connection:
                yield Line(connection, end=end, pace=self._pace)
        except OSError as error:
            told = f"{self._asked.key} on node {self._peer.node} ({self._asked.tier}) could not be read: {error}."
            raise TierUnreachable(told, hint=_HINT) from error

    def _head(self, line: Line) -> dict[str, Any]:
        """Ask, and return the head of the answer. Raises what the other node says is wrong."""
        asked, nonce = self._asked, str(line.hear().get("nonce"))
        proven = proof(
            self._peer.token, nonce, job=asked.job, epoch=asked.epoch, tier=asked.tier, key=asked.key, start=0
        )
        line.say({"tier": asked.tier, "key": asked.key, "from": 0, "proof": proven})
        head = line.hear()
        if "code" in head:
            kind = _ANSWERS.get(str(head["code"]), TierUnreachable)
            raise kind(f"Node {self._peer.node}: {str(head.get('message'))[:1000]}")
        return head

    def _ask(self, line: Line) -> int:
        head = self._head(line)
        size, length = head.get("size_bytes"), _length(head)
        if not isinstance(size, int):
            raise PeerGone("the head of its answer makes no sense")
        place = f"The record of {self._asked.key} on node {self._peer.node}"
        self.record = records.parsed(place, bytes(line.take(length)))
        if self.record["digest"] != self._asked.digest or self.record["size_bytes"] != size:
            raise DigestMismatch(f"{place} says {self.record['digest']}, wanted is {self._asked.digest}.")
        self._check_chunks(place, size)
        return size

    def _check_chunks(self, place: str, size: int) -> None:
        chunks = self.record.get("chunks")
        if not self._by_chunk:
            return
        try:
            made = digests.root(list(chunks or ()), size)
        except (TypeError, ValueError):
            made = ""
        if made != self._asked.digest:
            raise DigestMismatch(f"{place} lists chunks that do not make {self._asked.digest}.")

    def _chunks(self, line: Line, size: int) -> Iterator[memoryview]:
        """Yield what comes, each chunk compared before it is passed on, and all of it at the end."""
        whole, buffer = digests.hasher_like(self._asked.digest), memoryview(bytearray(min(size, digests.CHUNK_BYTES)))
        for number, start in enumerate(range(0, size, digests.CHUNK_BYTES)):
            chunk = buffer[: min(digests.CHUNK_BYTES, size - start)]
            line.fill(chunk)
            if not self._by_chunk:
                whole.update(chunk)
            elif digests.chunk(chunk) != self.record["chunks"][number]:
                raise self._mismatch(f"chunk {number}")
            yield chunk
        if not self._by_chunk and whole.text() != self._asked.digest:
            raise self._mismatch("it")

    @property
    def _by_chunk(self) -> bool:
        """Whether its digest is one over digests of chunks, which were compared with it."""
        return self._asked.digest.startswith(digests.XXH3)

    def _mismatch(self, what: str) -> DigestMismatch:
        where = f"{self._asked.key} on node {self._peer.node} ({self._asked.tier})"
        return DigestMismatch(f"{where}: {what} is not what was committed.")


def newest(peer: Peer, asked: Asked) -> list[tuple[Shard, str]]:
    """Return the newest shards that another node serves, with their digests. Raises CopyMissing, TierUnreachable.

    A digest is "" where that node cannot read its own record of the shard.
    """
    found = []
    for item in PeerShard(peer, asked).listed():
        shard, digest = shards.parse(str(item.get("key"))), str(item.get("digest"))
        if shard is not None and (not digest or digests.PATTERN.fullmatch(digest)):
            found.append((shard, digest))
    return sorted(found)


def _length(head: Mapping[str, Any]) -> int:
    length = head.get("record_bytes")
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= records.LIMIT_BYTES:
        raise PeerGone("the head of its answer makes no sense")
    return length


def _items(text: bytes | bytearray) -> list[dict[str, Any]]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PeerGone("its list is no JSON") from error
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
