"""How is the content of a shard named, so that a copy anywhere can be checked?

`xxh3:<32 hex>` is the digest of what a trainer left in memory: XXH3-128 over the XXH3-128 of each chunk of 8 MiB and
the size, so that chunks can be checked, and read, on their own. `blake2b:<32 hex>` is that of any other file.
"""

import hashlib
import re
import struct
from typing import Protocol

import xxhash

from reliability.errors import InvalidInput

CHUNK_BYTES = 8 * 2**20
XXH3 = "xxh3:"
BLAKE2B = "blake2b:"
PATTERN = re.compile(r"(?:blake2b|xxh3):[0-9a-f]{32}")


class Hasher(Protocol):
    """A running digest."""

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Take in the next bytes, in pieces of any size."""

    def text(self) -> str:
        """Return the digest as commit records hold it."""


class Blake:
    """BLAKE2b of 16 bytes over everything."""

    def __init__(self) -> None:
        self._hasher = hashlib.blake2b(digest_size=16)

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Take in the next bytes."""
        self._hasher.update(piece)

    def text(self) -> str:
        """Return the digest as commit records hold it."""
        return BLAKE2B + self._hasher.hexdigest()


class Chunked:
    """XXH3-128 of each chunk, and over all of those."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self._size = 0
        self._current = xxhash.xxh3_128()
        self._filled = 0

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Take in the next bytes, in pieces of any size."""
        view = memoryview(piece)
        while view:
            part = view[: CHUNK_BYTES - self._filled]
            self._current.update(part)
            self._filled += len(part)
            self._size += len(part)
            view = view[len(part) :]
            if self._filled == CHUNK_BYTES:
                self._end_chunk()

    def text(self) -> str:
        """Return the digest of what was taken in."""
        if self._filled:
            self._end_chunk()
        return root(self.chunks, self._size)

    def _end_chunk(self) -> None:
        self.chunks.append(self._current.hexdigest())
        self._current, self._filled = xxhash.xxh3_128(), 0


def chunk(piece: bytes | memoryview) -> str:
    """Return the digest of one whole chunk."""
    return str(xxhash.xxh3_128_hexdigest(piece))


def new_chunk() -> "xxhash.xxh3_128":
    """Return the running digest of one chunk."""
    return xxhash.xxh3_128()


def root(chunks: list[str], size: int) -> str:
    """Return the digest of a file of `size` bytes whose chunks have these digests."""
    over = xxhash.xxh3_128(b"".join(map(bytes.fromhex, chunks)))
    over.update(struct.pack("<Q", size))
    return XXH3 + str(over.hexdigest())


def hasher_like(expected: str) -> Hasher:
    """Return a running digest of the kind of another one. Raises InvalidInput for what is none."""
    if expected.startswith(XXH3):
        return Chunked()
    if expected.startswith(BLAKE2B):
        return Blake()
    raise InvalidInput("digest", f"{expected!r} is not a digest", hint=f"Digests begin with {XXH3!r} or {BLAKE2B!r}.")
