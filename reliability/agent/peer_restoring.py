"""How does a shard get into this node's memory from another node, whole or put together from its parts?

Each chunk is checked as it comes, and what lies in memory in the end has the digest that the rank's own commit named,
also when it was put together: nothing else is ever called by its name.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import heads, sealing
from reliability.agent.payloads import Lender, Source
from reliability.agent.peer_store import Asked, PeerShard
from reliability.errors import CopyMissing, DigestMismatch, TierError
from reliability.tiers import copying, direct, records
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.tiers.slotmaps import SlotMaps
from reliability.trainer import layout

PIECE_BYTES = 4 * 2**20
OWNER = "agent"


class ReplicaMismatch(TierError):
    """A shard that was put together is not the one that was committed."""

    code = "replica_mismatch"
    hint = "Another source is used; the replicated state of the ranks is not the same, or the head was damaged."


@dataclass(frozen=True, kw_only=True)
class Bringing:
    """What all shards that one order brings have in common; `limit_s` is how long one source may take."""

    memory: DirectoryTier
    node: str
    job: str
    epoch: int
    limit_s: float


def whole(bringing: Bringing, shard: Shard, source: Source) -> None:
    """Bring a shard of this very rank that another node serves. Raises TierError."""
    with _opened(bringing, source, shard.flat_key, source.digest) as (chunks, record):
        _store(bringing, shard, source.digest, chunks, record)


def put_together(bringing: Bringing, shard: Shard, source: Source, lender: Lender) -> None:
    """Make a shard from its head and the replicated part of another rank's. Raises TierError, ReplicaMismatch."""
    head = heads.unpacked(lender.head, lender.shared_at)
    if source.size_bytes < lender.shared_at + lender.shared_bytes:
        raise CopyMissing(f"The parts of {shard.flat_key} do not fit into its {source.size_bytes} bytes.")
    key = Shard(shard.epoch, shard.step, lender.rank).flat_key
    with _lent(bringing, source, key, lender) as chunks:
        pieces = _Joined(head, chunks, lender, source.size_bytes)
        try:
            _store(bringing, shard, source.digest, pieces, None)
        except DigestMismatch as error:
            if not pieces.complete:
                raise  # what the lender sent is not what it committed itself
            told = f"{shard.flat_key} put together from rank {lender.rank} on {source.node or bringing.node}"
            raise ReplicaMismatch(f"{told} is not what was committed: {error.message}") from error


@contextlib.contextmanager
def _opened(
    bringing: Bringing, source: Source, key: str, digest: str
) -> Iterator[tuple[Iterable[memoryview], Mapping[str, Any]]]:
    if source.peer is None:
        raise CopyMissing(f"{source.path} lies on node {source.node}, which does not serve it to {bringing.node}.")
    asked = Asked(
        job=bringing.job,
        epoch=bringing.epoch,
        tier=source.tier,
        key=key,
        digest=digest,
        limit_s=bringing.limit_s,
    )
    shard = PeerShard(source.peer, asked)
    with shard.opened() as chunks:
        yield chunks, shard.record


@contextlib.contextmanager
def _lent(bringing: Bringing, source: Source, key: str, lender: Lender) -> Iterator[Iterable[bytes | memoryview]]:
    """Yield the pieces of the lender's shard, from this node's own memory or from another node."""
    if source.node == bringing.node and source.tier == "memory":
        with (
            contextlib.closing(SlotMaps()) as maps,
            direct.held(bringing.memory.data_path(key), maps) as view,
        ):
            yield (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
    elif source.node == bringing.node:
        path = Path(source.path)
        yield copying.pieces_verified(path, digest=lender.digest)
    else:
        with _opened(bringing, source, key, lender.digest) as (chunks, _record):
            yield chunks


class _Joined:
    """The head, the lender's replicated part, and zeros up to the size; `complete` once all of it was given."""

    def __init__(self, head: bytes, chunks: Iterable[bytes | memoryview], lender: Lender, size: int) -> None:
        self._head = head
        self._chunks = chunks
        self._lender = lender
        self._size = size
        self.complete = False

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._head
        start, at = self._lender.lender_shared_at, 0
        end = start + self._lender.shared_bytes
        for chunk in self._chunks:
            piece = memoryview(chunk)[max(start - at, 0) : max(end - at, 0)]
            at += len(chunk)
            if piece:
                yield piece
            if at >= end:
                break
        left = self._size - len(self._head) - self._lender.shared_bytes
        while left > 0:
            yield bytes(min(left, PIECE_BYTES))
            left -= PIECE_BYTES
        self.complete = True


def _store(
    bringing: Bringing, shard: Shard, digest: str, pieces: Iterable[Any], record: Mapping[str, Any] | None
) -> None:
    """Write a shard into memory, its digest compared before it has its name, and its commit record last."""
    memory, key = bringing.memory, shard.flat_key
    memory.delete(key)
    data = memory.data_path(key)
    size = copying.gathered(pieces, data, digest=digest, owner=OWNER)
    if record is not None and record.get("format") != layout.FORMAT:
        where = {"job": bringing.job, "epoch": shard.epoch, "step": shard.step, "rank": shard.rank}
        known = {"stall_s": 0.0, **record, **where, "taken_at": 0.0, "size_bytes": size, "digest": digest}
        copying.write_json(data.with_suffix(".json"), records.guarded(known), owner=OWNER)
        return
    _seal(data, bringing.job, digest)


def _seal(data: Path, job: str, digest: str) -> None:
    """Have the record made of what lies there; the second process may have done so already."""
    sealing.seal(data, job=job)
    found = json.loads(data.with_suffix(".json").read_bytes()).get("digest")
    if found != digest:
        raise DigestMismatch(f"{data} was sealed with {found}, wanted is {digest}.")
