"""How does a step that a program wrote become a shard like any other, and a folder again?

The shard has the format of `trainer/layout.py`: its state is {"stepkeeper_folder": {...}} with every file as bytes.
Both ways the bytes are streamed through one chunk of 8 MiB; the digest of each chunk is computed as it passes.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from reliability.agent import program_listing
from reliability.agent.program_listing import ChangedStep, Entry, Listing
from reliability.domain import step_paths
from reliability.errors import DigestMismatch, TierFull
from reliability.tiers import copying, digests
from reliability.tiers.digests import CHUNK_BYTES
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard
from reliability.tiers.step_folder import StepFolder, UnfitStep
from reliability.trainer import layout
from reliability.trainer.errors import CorruptSnapshot
from reliability.trainer.layout import Prelude
from reliability.trainer.sums import PIECE_BYTES, Sums
from reliability.trainer.tree import Decoder, Encoder

KIND = "stepkeeper_folder"
VERSION = 1


@dataclass
class _Chunks:
    """Bytes in order, written to a file in whole chunks, each of them hashed."""

    handle: int
    buffer: bytearray = field(default_factory=lambda: bytearray(CHUNK_BYTES))
    filled: int = 0
    size: int = 0
    chunks: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)

    def take(self, content: bytes) -> None:
        """Add bytes."""
        left = memoryview(content)
        while left:
            room = self._room()[: len(left)]
            room[:] = left[: len(room)]
            left = left[len(room) :]
            self._filled(len(room))

    def take_file(self, handle: int, entry: Entry) -> None:
        """Add the content of an opened file. Raises ChangedStep when it is shorter or longer than it was."""
        left = entry.size
        while left:
            count = os.readv(handle, [self._room()[:left]])
            if not count:
                raise ChangedStep(f"{entry.path} became shorter while it was read.")
            left -= count
            self._filled(count)
        if os.read(handle, 1):
            raise ChangedStep(f"{entry.path} became longer while it was read.")

    def pad(self, to: int) -> None:
        """Add zeros until the size is `to`."""
        self.take(bytes(to - self.size))

    def end(self) -> None:
        """Write what is left."""
        if self.filled:
            self._write()

    def _room(self) -> memoryview:
        return memoryview(self.buffer)[self.filled :]

    def _filled(self, count: int) -> None:
        self.filled += count
        self.size += count
        if self.filled == CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        piece = memoryview(self.buffer)[: self.filled]
        sums = Sums(ctypes.addressof(ctypes.c_char.from_buffer(piece)), self.filled)
        for at in range(0, self.filled, PIECE_BYTES):
            sums.add(at)
        self.chunks.append(digests.chunk(piece))
        self.sums.append(sums.text())
        while piece:
            piece = piece[os.write(self.handle, piece) :]
        self.filled = 0


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """What was written of a step, as its commit record names it."""

    size_bytes: int
    digest: str
    chunks: list[str]
    sums: list[str]


def plan_of(listing: Listing | None, *, job: str, shard: Shard, generation: int, taken_at: float) -> tuple[bytes, int]:
    """Return (everything before the first file, size of the whole shard in bytes). None: a rank without files."""
    sizes = [entry.size for entry in listing.files] if listing else []
    about = {"job": job, "epoch": shard.epoch, "rank": shard.rank, "step": shard.step, "taken": generation, "failed": 0}
    header = layout.header_of(about, _tree(listing), sizes)
    found = layout.plan(sizes, layout.room_for(header))
    prelude = found.prelude(header, total=found.needed, generation=generation, taken_at=taken_at, stall_s=0.0)
    head = replace(prelude, state=layout.READY).pack() + header
    return head + bytes(found.data_at - len(head)), found.needed


def check_room(folder: Path, size: int) -> None:
    """Raise TierFull when a shard of so many bytes has no room in a folder now, UnfitStep when it never could have."""
    with copying.tier_errors(folder):
        space = os.statvfs(folder if folder.is_dir() else folder.parent)
    free, whole = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    if whole < size:
        hint = "Write less in a step, or give the node a larger disk; the step is passed over."
        raise UnfitStep(f"It takes {size} bytes, and the whole disk of {folder} has {whole}.", hint=hint)
    if free < size:
        raise TierFull(f"No room for {size} bytes below {folder}: {free} are free.")


def write(target: Path, head: bytes, size: int, *, place: Path, listing: Listing | None, owner: str) -> Sealed:
    """Write a step as a shard, durable, the file being there whole or not at all; its name is durable with the next.

    Raises ChangedStep when the step is not what was listed any more, TierFull, TierUnreachable.
    """
    part = copying.part_path(target, owner)
    with copying.writing(target, part.name, sync_folder=False) as handle, copying.tier_errors(target):
        chunks = _Chunks(handle)
        chunks.take(head)
        if listing is not None:
            _take_files(chunks, place, listing)
        chunks.pad(size)
        chunks.end()
        if listing is not None and _now(place, listing.name) != listing.stamp:
            raise ChangedStep(f"{place / listing.name} changed while it was read.")
    digest = digests.root(chunks.chunks, size)
    return Sealed(size_bytes=size, digest=digest, chunks=chunks.chunks, sums=chunks.sums)


def _take_files(chunks: _Chunks, place: Path, listing: Listing) -> None:
    try:
        with program_listing.opened_step(place, listing) as step:
            for entry in listing.files:
                handle = program_listing.opened_file(step, listing, entry)
                try:
                    chunks.take_file(handle, entry)
                finally:
                    os.close(handle)
                chunks.pad(layout.aligned(chunks.size))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ChangedStep(f"{place / listing.name}: {error.filename} vanished while it was read.") from error


def _now(place: Path, name: str) -> str:
    try:
        return program_listing.listed(place, name).stamp
    except FileNotFoundError:
        return ""


def _tree(listing: Listing | None) -> Any:
    """Return the tree of a step; text is encoded as everywhere, so that names need not be UTF-8."""
    encoder = Encoder()
    if listing is None:
        return encoder.encode({KIND: {"version": VERSION, "name": ""}})
    files = [[encoder.encode(entry.path), {"bytes": number}] for number, entry in enumerate(listing.files)]
    plain = {
        "version": VERSION,
        "name": listing.name,
        "is_file": listing.is_file,
        "folders": list(listing.folders),
        "links": [list(link) for link in listing.links],
    }
    about = encoder.encode(plain)
    told = [[entry.size, entry.mtime_ns, entry.inode, entry.mode] for entry in listing.files]
    about["dict"] += [["entries", told], ["files", {"dict": files}]]
    return {"dict": [[KIND, about]]}


def unpack(shard: Path, record: Mapping[str, Any], into: StepFolder) -> tuple[str, bool]:
    """Write a shard's files into a folder; its links are made when that is finished.

    Returns the step's name ('' for a rank without files), and whether the step is a single file.

    Every byte is compared with the record's digest while it passes; what was written counts only once this returned.
    Raises DigestMismatch, RecordUnusable for a shard that no folder was sealed to, UnfitStep when a file lies there
    with another content, TierFull, TierUnreachable.
    """
    with copying.tier_errors(shard), copying.opened(shard) as file:
        reader = _Reader(file.fileno())
        step, prelude, offsets = _read_head(reader, shard)
        for path in step.folders:
            into.folder(path)
        unlike = []
        for entry, offset in zip(step.files, offsets, strict=True):
            reader.skip_to(offset)
            path = entry.path or step.name
            if not into.file(path, reader.pieces(entry.size), mode=entry.mode):
                unlike.append(path)
        reader.skip_to(prelude.total)
        copying.compare(shard, reader.digest(), str(record.get("digest")))
    for path in unlike:
        raise into.unlike(path)
    for path, target in step.links:
        into.link(path, target)
    return step.name, step.is_file


class _Reader:
    """The bytes of a file in order, all of them hashed."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._hasher = digests.Chunked()
        self._at = 0
        self._buffer = memoryview(bytearray(copying.CHUNK_BYTES))

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes. Each piece is valid until the next is asked for."""
        while size:
            count = os.readv(self._handle, [self._buffer[:size]])
            if not count:
                raise DigestMismatch(f"The shard ends at byte {self._at}, before its contents do.")
            self._hasher.update(self._buffer[:count])
            self._at += count
            size -= count
            yield self._buffer[:count]

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return b"".join(bytes(piece) for piece in self.pieces(size))

    def skip_to(self, offset: int) -> None:
        """Pass over what lies before an offset."""
        for _piece in self.pieces(offset - self._at):
            pass

    def digest(self) -> str:
        """Return the digest of all that was read."""
        return self._hasher.text()


def listing_of(shard: Path) -> Listing:
    """Return the listing that was sealed to a shard. Raises CopyMissing, DigestMismatch, RecordUnusable, TierError."""
    with copying.tier_errors(shard), copying.opened(shard) as file:
        return _read_head(_Reader(file.fileno()), shard)[0]


def _read_head(reader: _Reader, shard: Path) -> tuple[Listing, Prelude, tuple[int, ...]]:
    """Return listing, prelude, and the offset of each file."""
    try:
        prelude = Prelude.read(reader.take(layout.PRELUDE_BYTES), shard)
        raw = prelude.pack() + reader.take(prelude.data_at - layout.PRELUDE_BYTES)
        header, _layout, sizes = layout.read_header(prelude, memoryview(raw), shard)
    except CorruptSnapshot as error:
        raise DigestMismatch(str(error)) from error
    found = _described(header, shard)
    if [entry.size for entry in found.files] != sizes:
        raise RecordUnusable(f"{shard} holds other files than it says.")
    return found, prelude, layout.plan(sizes, prelude.data_at).offsets


def _described(header: Mapping[str, Any], where: Path) -> Listing:
    text = Decoder([]).decode
    try:
        about = dict(dict(header["tree"]["dict"])[KIND]["dict"])
        if about["version"] != VERSION:
            raise RecordUnusable(f"{where} was written by another version.")
        paths = [text(path) for path, _bytes in about.get("files", {"dict": []})["dict"]]
        found = Listing(
            name=text(about["name"]),
            is_file=bool(about.get("is_file")),
            files=tuple(Entry(path, *told) for path, told in zip(paths, about.get("entries", ()), strict=True)),
            folders=tuple(text(path) for path in about.get("folders", ())),
            links=tuple((text(path), text(target)) for path, target in about.get("links", ())),
        )
    except (KeyError, TypeError, ValueError, CorruptSnapshot) as error:
        raise RecordUnusable(f"{where} holds no folder of a program: {error!r}") from error
    if not _stays_within(found):
        raise RecordUnusable(f"{where} holds a path that leads outside.")
    return found


def _stays_within(listing: Listing) -> bool:
    """Whether nothing of a step would be written outside it: no path leads out, and none leads through a link."""
    links = dict(listing.links)
    files = [entry.path or listing.name for entry in listing.files]
    paths = [*files, *listing.folders, *links, *([listing.name] if listing.name else [])]
    below = all(step_paths.is_below(path) and links.keys().isdisjoint(_above(path)) for path in paths)
    ends = all(step_paths.is_target(target) and step_paths.stays(path, target, links) for path, target in links.items())
    return below and ends and "/" not in listing.name and len(links) == len(listing.links)


def _above(path: str) -> list[str]:
    return [str(each) for each in PurePosixPath(path).parents]
