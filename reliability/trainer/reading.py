"""How does a shard get back into the program: in one pass from where it lies to where it belongs, checked on the way?

From memory the bytes are copied out of the mapped slot; from a disk they pass through two buffers, so that reading,
checking and copying overlap. Arrays that the program has already, of the same type, shape and order, are filled in
place; everything else gets memory of its own. Each chunk is checked against the sums of the commit record as it
passes; when one differs nothing may be used, the arrays filled so far included.
"""

import ctypes
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import layout
from .arrays import aligned_buffer
from .errors import ConfigurationError, CorruptSnapshot
from .folder import CommitRecord, Shard
from .layout import Prelude
from .live import Placement, place
from .sources import Mapped, OnDisk, Slotted, in_memory
from .sums import CHUNK_BYTES, Sums
from .tree import Decoder

WORKERS = 2


def load(
    record_path: Path, *, rank: int, live: Any = None, mapped: Callable[[Path], int | None] = lambda _path: None
) -> tuple[Shard, Any]:
    """Return (shard, state) of a committed shard, every byte of it checked against its record.

    `mapped` says at which address this process has a file mapped already, if it has.
    `live` is the state as the program has it: arrays in it that fit are filled in place and handed back themselves.
    Raises CorruptSnapshot when anything differs; arrays of `live` then hold no state at all and must not be used.
    Raises ConfigurationError when the shard is another rank's.
    """
    record = CommitRecord.read(record_path)
    if record.rank != rank:
        raise ConfigurationError(f"rank {rank} was told to restore {record_path}, the shard of rank {record.rank}")
    if record.format != layout.FORMAT:
        raise CorruptSnapshot(f"{record_path} has the format {record.format!r}, this client reads {layout.FORMAT!r}")
    path = record_path.with_suffix(".snap")
    try:
        with path.open("rb", buffering=0) as file:
            return Shard(record.epoch, record.step, record.rank), _read(file.fileno(), path, record, live, mapped)
    except OSError as error:
        raise CorruptSnapshot(f"the shard of {record_path} cannot be read: {error}") from error


def _read(fd: int, path: Path, record: CommitRecord, live: Any, mapped: Callable[[Path], int | None]) -> Any:
    size = os.fstat(fd).st_size
    if size != record.size_bytes:
        raise CorruptSnapshot(f"{path} is {size} bytes long, its commit record says {record.size_bytes}")
    prelude = Prelude.read(os.pread(fd, layout.PRELUDE_BYTES, 0), path)
    if prelude.total != size or prelude.state != layout.READY:
        raise CorruptSnapshot(f"{path} was never finished")
    head = memoryview(os.pread(fd, prelude.data_at, 0))
    header, laid, sizes = layout.read_header(prelude, head, path)
    _check_name(header, record, path)
    placed = place(header["tree"], live)
    targets, buffers = _targets(sizes, placed)
    scatter = Scatter(laid.offsets, sizes, targets)
    source = _source(fd, size, path, mapped)
    try:
        _stream(source, size, path, record.sums, scatter)
    finally:
        source.close()
    return _decoded(header, buffers, placed, path)


def _check_name(header: dict[str, Any], record: CommitRecord, path: Path) -> None:
    """A shard that lies under another one's name is not what was asked for."""
    said = tuple(header.get(name) for name in ("job", "epoch", "step", "rank"))
    if said != (record.job, record.epoch, record.step, record.rank):
        raise CorruptSnapshot(f"{path} holds {said}, its commit record says otherwise")


def _decoded(header: dict[str, Any], buffers: Sequence[memoryview], placed: Placement, path: Path) -> Any:
    try:
        return Decoder(buffers, placed.values).decode(header["tree"])
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise CorruptSnapshot(f"{path} has a header that makes no sense: {error!r}") from error


def _targets(sizes: Sequence[int], placed: Placement) -> tuple[list[int], list[memoryview]]:
    """Return the address of every buffer, and the buffers themselves; what is placed has memory already."""
    addresses, buffers = [], []
    for number, size in enumerate(sizes):
        known = placed.addresses.get(number)
        if known is not None and known[1] == size and size:
            buffer = memoryview((ctypes.c_ubyte * size).from_address(known[0])).cast("B")
            address = known[0]
        else:
            buffer = aligned_buffer(size)
            address = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if size else 0
        addresses.append(address)
        buffers.append(buffer)
    return addresses, buffers


class Scatter:
    """Copies stretches of a shard to the buffers they belong to."""

    def __init__(self, offsets: Sequence[int], sizes: Sequence[int], targets: Sequence[int]) -> None:
        kept = sorted((index for index, size in enumerate(sizes) if size), key=lambda index: offsets[index])
        self._offsets = [offsets[index] for index in kept]
        self._sizes = [sizes[index] for index in kept]
        self._targets = [targets[index] for index in kept]

    def copy(self, source: int, start: int, length: int) -> None:
        """Copy `length` bytes that lie at address `source` and belong at offset `start` of the shard."""
        index = max(bisect_right(self._offsets, start) - 1, 0)
        end = start + length
        while index < len(self._offsets) and self._offsets[index] < end:
            offset = self._offsets[index]
            first, last = max(offset, start), min(offset + self._sizes[index], end)
            if first < last:
                ctypes.memmove(self._targets[index] + first - offset, source + first - start, last - first)
            index += 1


def _source(fd: int, size: int, path: Path, mapped: Callable[[Path], int | None]) -> Slotted | OnDisk:
    address = mapped(path)
    if address is not None:
        return Slotted(address)
    return Mapped(fd, size) if in_memory(fd) else OnDisk(fd, size, path)


def _stream(source: Slotted | OnDisk, size: int, path: Path, expected: Sequence[str], scatter: Scatter) -> None:
    """Bring all chunks, by two workers when there is more than one."""
    starts = range(0, size, CHUNK_BYTES)
    if len(expected) != len(starts):
        raise CorruptSnapshot(f"the commit record of {path} has {len(expected)} sums for {len(starts)} chunks")

    def bring(number: int) -> None:
        start = number * CHUNK_BYTES
        length = min(CHUNK_BYTES, size - start)
        sums = _checked_copy(source.at(start, length), start, length, scatter, thorough=not source.in_memory)
        if not sums.agrees(expected[number]):
            raise CorruptSnapshot(f"{path} is damaged between byte {start} and byte {start + length}")

    if len(starts) == 1:
        bring(0)
        return
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="stepkeeper-restore") as pool:
        for done in [pool.submit(bring, number) for number in range(len(starts))]:
            done.result()


def _checked_copy(source: int, start: int, length: int, scatter: Scatter, *, thorough: bool) -> Sums:
    """Copy one chunk and return its sums, formed while it lies in a cache.

    It is copied in one go: memory copies of half a megabyte take twice as long for the same bytes.
    """
    scatter.copy(source, start, length)
    sums = Sums(source, length, thorough=thorough)
    sums.add_all()
    return sums
