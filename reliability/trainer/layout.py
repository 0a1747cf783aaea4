"""How does a shard look, in memory as on a disk?

    offset  0  magic "\\x93SKSNAP2"
            8  u64  length of the whole file, a multiple of 4096
           16  u64  length of the header
           24  u32  CRC-32 of the header and of the numbers around it
           28  u32  state: 0 empty, 1 being written, 2 ready
           32  u64  generation: how many saves this rank had begun
           40  u64  offset of the first buffer
           48  f64  when the state was taken, Unix time
           56  f64  seconds for which training stood still
           64  header: JSON {"tree": ..., "buffers": [length, ...], "job", "epoch", "step", "rank"}
               buffers, each at the next multiple of 64 bytes

A header with "parts", one letter for each buffer (l local, s sharded, r replicated), says that they lie in this order,
the replicated ones from the next multiple of 4096 on. All bytes between and behind the buffers are zero then: the
replicated part is the same, bit by bit, in the shards of all ranks that have it ("group" tells which these are).

All numbers are little endian. A slot in memory has the very same bytes. It counts from the one store on that sets its
state to ready, which comes after everything else; what it is then, every later copy is.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import parts
from .errors import CorruptSnapshot

FORMAT = "stepkeeper-2"
MAGIC = b"\x93SKSNAP2"
PAGE = 4096
ALIGNMENT = 64
STATE_AT = 28
EMPTY, WRITING, READY = 0, 1, 2
LONGEST_HEADER = 2**31
_PRELUDE = struct.Struct("<8sQQIIQQdd")
_SUMMED = struct.Struct("<QQQQ")
PRELUDE_BYTES = _PRELUDE.size


@dataclass(frozen=True)
class Prelude:
    """The first 64 bytes of a shard. Lengths and offsets in bytes, times in seconds."""

    total: int
    header: int
    crc: int
    state: int
    generation: int
    data_at: int
    taken_at: float
    stall_s: float

    @classmethod
    def read(cls, raw: bytes | memoryview, where: object) -> "Prelude":
        """Return the prelude. Raises CorruptSnapshot when it is none, or is none of this format."""
        if len(raw) < PRELUDE_BYTES:
            raise CorruptSnapshot(f"{where} ends at byte {len(raw)}, before its contents do")
        magic, *fields = _PRELUDE.unpack(raw[:PRELUDE_BYTES])
        if magic != MAGIC:
            raise CorruptSnapshot(f"{where} is not a snapshot of this format")
        found = cls(*fields)
        ends = PRELUDE_BYTES + found.header
        if found.total % PAGE or found.header > LONGEST_HEADER or not ends <= found.data_at <= found.total:
            raise CorruptSnapshot(f"{where} has a damaged prelude")
        return found

    def pack(self) -> bytes:
        """Return the bytes."""
        return _PRELUDE.pack(
            MAGIC,
            self.total,
            self.header,
            self.crc,
            self.state,
            self.generation,
            self.data_at,
            self.taken_at,
            self.stall_s,
        )


@dataclass(frozen=True)
class Layout:
    """Where everything of one shard lies: the offset of each buffer, and how many bytes it takes in all.

    The replicated part is what lies from `shared_at` to `needed`; nothing is when the two are the same.
    """

    offsets: tuple[int, ...]
    data_at: int
    needed: int
    shared_at: int

    def prelude(self, header: bytes, *, total: int, generation: int, taken_at: float, stall_s: float) -> Prelude:
        """Return the prelude of a shard of `total` bytes with this layout, as it is while it is being written."""
        crc = checksum(header, total=total, generation=generation, data_at=self.data_at)
        return Prelude(total, len(header), crc, WRITING, generation, self.data_at, taken_at, stall_s)


def checksum(header: bytes | memoryview, *, total: int, generation: int, data_at: int) -> int:
    """Return what guards a header before anything in it is believed."""
    return zlib.crc32(header, zlib.crc32(_SUMMED.pack(total, len(header), generation, data_at)))


def aligned(offset: int, to: int = ALIGNMENT) -> int:
    """Return the next multiple of `to`."""
    return offset + -offset % to


def header_of(about: dict[str, Any], tree: Any, sizes: Sequence[int], told: str = "", group: str = "") -> bytes:
    """Return the header of a state; `told`: the parts of its buffers, nothing when all are the rank's own."""
    header = {**about, "tree": tree, "buffers": list(sizes)}
    if told:
        header.update(parts=told, group=group)
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def room_for(header: bytes, before: int = 0) -> int:
    """Return where the buffers begin: where they did `before` if that suits, or with room for the header to grow."""
    ends = PRELUDE_BYTES + len(header)
    roomy = aligned(ends + len(header) // 8 + 1024, PAGE)
    return before if ends <= before <= 2 * roomy else roomy


def plan(sizes: Sequence[int], data_at: int, told: str = "") -> Layout:
    """Return the layout of buffers of these sizes, the first of which begins at `data_at`; `told`: their parts."""
    offsets, at, shared_at = [0] * len(sizes), data_at, -1
    for number in parts.order(told) if told else range(len(sizes)):
        if told and told[number] == "r" and shared_at < 0:
            at = shared_at = aligned(at, PAGE)
        offsets[number] = at
        at = aligned(at + sizes[number])
    needed = aligned(at, PAGE)
    return Layout(tuple(offsets), data_at, needed, shared_at if shared_at >= 0 else needed)


def gaps(layout: Layout, sizes: Sequence[int], total: int) -> list[tuple[int, int]]:
    """Return the stretches (from, to) of a shard of `total` bytes, from its data on, that no buffer takes."""
    found, at = [], layout.data_at
    for offset, size in sorted(zip(layout.offsets, sizes, strict=True)):
        if offset > at:
            found.append((at, offset))
        at = max(at, offset + size)
    return [*found, (at, total)] if at < total else found


def read_header(prelude: Prelude, raw: memoryview, where: object) -> tuple[dict[str, Any], Layout, list[int]]:
    """Return (header, layout, sizes of the buffers) of the bytes before `data_at`. Raises CorruptSnapshot."""
    text = raw[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header]
    found = checksum(text, total=prelude.total, generation=prelude.generation, data_at=prelude.data_at)
    if len(text) != prelude.header or found != prelude.crc:
        raise CorruptSnapshot(f"{where} has a damaged header")
    try:
        header = json.loads(text.tobytes())
        sizes = [int(size) for size in header["buffers"]]
        told = str(header.get("parts", ""))
        if told and len(told) != len(sizes):
            raise ValueError(f"{len(told)} parts of {len(sizes)} buffers")
        layout = plan(sizes, prelude.data_at, told)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise CorruptSnapshot(f"{where} has a header that makes no sense: {error!r}") from error
    if min(sizes, default=0) < 0 or layout.needed > prelude.total:
        raise CorruptSnapshot(f"{where} ends at byte {prelude.total}, before its contents do")
    return header, layout, sizes
