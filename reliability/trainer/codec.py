"""How does a shard file look, and is what is read exactly what was written?

    offset  0  magic "\\x93SKSNAP1"
            8  u64  length of the whole file
           16  u64  length of the header
           24  u32  CRC-32 of the header
           28  u32  zero
           32  header: JSON {"tree": ..., "buffers": [length, ...]}
               buffers, each at the next multiple of 64 bytes

All numbers are little endian. The digest (BLAKE2b, 16 bytes, written `blake2b:<hex>`) covers every byte of the
file and is kept in the commit record; without a record, length and header are still checked.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .arrays import ALIGNMENT, aligned_buffer
from .errors import CorruptSnapshot
from .tree import Decoder, Encoder

FORMAT = "stepkeeper-1"
_MAGIC = b"\x93SKSNAP1"
_PRELUDE = struct.Struct("<8sQQII")
_CHUNK = 4 * 1024 * 1024


def new_digest() -> "hashlib.blake2b":
    """Return the running digest that a commit record names."""
    return hashlib.blake2b(digest_size=16)


def digest_text(digest: "hashlib.blake2b") -> str:
    """Return the digest as a commit record holds it."""
    return f"blake2b:{digest.hexdigest()}"


def write(path: Path, state: Any) -> tuple[int, str]:
    """Write `state` to a new file and return (bytes, digest).

    Raises UnsupportedState before the file is made, or OSError, for example when the disk is full; then an
    unfinished file may be left. The state must not change until this returns.
    """
    encoder = Encoder()
    tree = encoder.encode(state)
    digest = new_digest()
    size = 0
    with path.open("wb", buffering=0) as file:
        for piece in _pieces(tree, encoder.buffers):
            digest.update(piece)
            _write_all(file.fileno(), piece)
            size += len(piece)
    return size, digest_text(digest)


def _pieces(tree: Any, buffers: list[memoryview]) -> Iterator[memoryview]:
    """Yield the whole file, in order."""
    sizes = [len(buffer) for buffer in buffers]
    header = json.dumps({"tree": tree, "buffers": sizes}, separators=(",", ":"), allow_nan=False).encode()
    end = _PRELUDE.size + len(header)
    total = end
    for size in sizes:
        total += -total % ALIGNMENT + size
    yield memoryview(_PRELUDE.pack(_MAGIC, total, len(header), zlib.crc32(header), 0) + header)
    for buffer in buffers:
        gap = -end % ALIGNMENT
        if gap:
            yield memoryview(bytes(gap))
        for start in range(0, len(buffer), _CHUNK):
            yield buffer[start : start + _CHUNK]
        end += gap + len(buffer)


def _write_all(fd: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(fd, piece) :]


def read(path: Path, *, digest: str | None = None, size: int | None = None) -> Any:
    """Return the state in a shard file. Arrays are writable and own their memory; tensors are on the CPU.

    Nothing is decoded before the length and, when given, the digest are right. Raises CorruptSnapshot, OSError,
    and StateMismatch when an array library that the state needs has not been imported.
    """
    with path.open("rb", buffering=0) as file:
        reader = _Reader(file, path)
        header, buffers = reader.contents(size)
    if digest is not None and digest_text(reader.digest) != digest:
        raise CorruptSnapshot(f"{path} has the digest {digest_text(reader.digest)}, its commit record says {digest}")
    try:
        return Decoder(buffers).decode(header["tree"])
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise CorruptSnapshot(f"{path} has a header that makes no sense: {error!r}") from error


class _Reader:
    """Reads one file front to back, hashing what it reads."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.digest = new_digest()
        self._file = file
        self._path = path
        self._length = os.fstat(file.fileno()).st_size
        self._at = 0

    def contents(self, size: int | None) -> tuple[dict[str, Any], list[memoryview]]:
        if size is not None and size != self._length:
            raise self._corrupt(f"is {self._length} bytes long, its commit record says {size}")
        header = self._header()
        try:
            lengths = [int(length) for length in header["buffers"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._corrupt("has no list of buffers") from error
        buffers = []
        for length in lengths:
            self._take(-self._at % ALIGNMENT)
            buffers.append(self._take(length))
        if self._at != self._length:
            raise self._corrupt(f"has {self._length - self._at} bytes more than its buffers")
        return header, buffers

    def _header(self) -> dict[str, Any]:
        magic, total, length, crc, _zero = _PRELUDE.unpack(self._take(_PRELUDE.size))
        if magic != _MAGIC:
            raise self._corrupt("is not a snapshot of this format")
        if total != self._length:
            raise self._corrupt(f"is {self._length} bytes long and should be {total}")
        raw = self._take(length)
        if zlib.crc32(raw) != crc:
            raise self._corrupt("has a damaged header")
        try:
            header = json.loads(raw.tobytes())
        except (ValueError, RecursionError) as error:
            raise self._corrupt("has a header that is not JSON") from error
        if not isinstance(header, dict):
            raise self._corrupt("has a header that is not an object")
        return header

    def _take(self, length: int) -> memoryview:
        if length < 0 or self._at + length > self._length:
            raise self._corrupt(f"ends at byte {self._length}, before its contents do")
        buffer = aligned_buffer(length)
        done = 0
        while done < length:
            count = self._file.readinto(buffer[done : done + _CHUNK])  # type: ignore[attr-defined]
            if not count:
                raise self._corrupt("became shorter while it was read")
            self.digest.update(buffer[done : done + count])
            done += count
        self._at += length
        return buffer

    def _corrupt(self, message: str) -> CorruptSnapshot:
        return CorruptSnapshot(f"{self._path} {message}")
