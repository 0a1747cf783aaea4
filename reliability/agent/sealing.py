"""What makes a shard in memory count for the whole system: its digest, computed once, and the record that names it.

A trainer only copies; whoever reads the slot first computes the digests of its chunks, and the sums that a trainer
checks by, and writes the commit record beside it. Nothing in a slot is trusted, and the trainer may write it over at
any moment: it is looked at again after it was read, and what is no longer the same was never sealed.
"""

import contextlib
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from reliability.agent import heads
from reliability.errors import CopyMissing, TierError
from reliability.tiers import copying, digests, opening, records
from reliability.tiers.directory import DATA_SUFFIX, RECORD_SUFFIX
from reliability.tiers.records import RecordUnusable
from reliability.tiers.slotmaps import SlotMaps
from reliability.trainer import layout
from reliability.trainer.errors import CorruptSnapshot
from reliability.trainer.folder import Shard
from reliability.trainer.layout import Layout, Prelude
from reliability.trainer.sums import PIECE_BYTES, Sums

log = logging.getLogger("stepkeeper.agent")


def unsealed(memory: Path) -> list[tuple[Shard, Path]]:
    """Return the shards in memory that have no record yet, newest first."""
    found = []
    for name in _names(memory):
        path = memory / name
        shard = Shard.of(path) if name == f"{name.partition('.')[0]}{DATA_SUFFIX}" else None
        if shard is not None and shard.stem + DATA_SUFFIX == name and not _has_record(path) and _is_file(path):
            found.append((shard, path))
    return sorted(found, key=lambda item: item[0], reverse=True)


def seal_all(memory: Path, *, job: str) -> None:
    """Seal what is left to seal, when the ranks are gone: what they still got ready is what is wanted."""
    for shard, path in unsealed(memory):
        try:
            seal(path, job=job)
        except TierError as error:
            log.debug("shard not sealed: shard=%s reason=%s", shard.stem, error.message)


def seal(path: Path, *, job: str, maps: SlotMaps | None = None) -> bool:
    """Write the commit record of a shard in memory; False when it is none (any more).

    `maps`: the mappings of a process that seals again and again.
    Raises RecordUnusable for a file that only looks like a shard, TierError when the record cannot be written.
    """
    if maps is None:
        with contextlib.closing(SlotMaps()) as own:
            return seal(path, job=job, maps=own)
    handle = copying.handle(path)
    try:
        record = _record_of(handle, path, job, maps)
    except RecordUnusable:
        if _still_named(handle, path):
            raise
        return False  # it lost its name, and then what it held, while it was read
    finally:
        os.close(handle)
    if record is None:
        return False
    with copying.tier_errors(path):
        opening.replace(path.with_suffix(RECORD_SUFFIX), copying.json_bytes(records.guarded(record)), mode=0o600)
    return True


def _record_of(handle: int, path: Path, job: str, maps: SlotMaps) -> dict[str, Any] | None:
    """Return the record of what is ready under a name; None when that changed while it was read."""
    before = _prelude(handle, path)
    if before is None:
        return None
    record = _record(handle, path, before, job, maps)
    same = _prelude(handle, path) == before and _still_named(handle, path)
    return record if same else None


def _record(handle: int, path: Path, prelude: Prelude, job: str, maps: SlotMaps) -> dict[str, Any]:
    shard = Shard.of(path)
    if shard is None:
        raise CopyMissing(f"{path} is not named as a shard.")
    chunks, sums = [], []
    with copying.tier_errors(path), maps.content(handle) as view:
        header, laid, sizes = _header(view, path, prelude)
        if tuple(header.get(name) for name in ("epoch", "step", "rank")) != (shard.epoch, shard.step, shard.rank):
            raise RecordUnusable(f"{path} does not hold the shard it is named after.")
        shared = digests.new_chunk() if header.get("parts") else None
        for start in range(0, len(view), digests.CHUNK_BYTES):
            common = None if shared is None else Shared(shared, laid.shared_at - start, laid.needed - start)
            chunk, added = _read_chunk(view[start : start + digests.CHUNK_BYTES], common)
            chunks.append(chunk)
            sums.append(added)
        parts: dict[str, Any] = {}
        if shared is not None:
            group = str(header.get("group", ""))
            parts = {"parts": heads.parts_of(laid, header["parts"], sizes, group, shared.hexdigest())}
            heads.keep(path, view[: laid.shared_at], parts["parts"])
    return {
        "job": job,
        "epoch": shard.epoch,
        "step": shard.step,
        "rank": shard.rank,
        "size_bytes": prelude.total,
        "digest": digests.root(chunks, prelude.total),
        "taken_at": prelude.taken_at,
        "stall_s": round(prelude.stall_s, 6),
        "format": layout.FORMAT,
        "generation": prelude.generation,
        "moment": header.get("moment"),
        "taken": header.get("taken"),
        "failed": header.get("failed"),
        "chunks": chunks,
        "sums": sums,
        **parts,
    }


def _header(view: memoryview, path: Path, prelude: Prelude) -> tuple[dict[str, Any], Layout, list[int]]:
    try:
        return layout.read_header(prelude, view[: prelude.data_at], path)
    except CorruptSnapshot as error:
        raise RecordUnusable(str(error)) from error


@dataclass(frozen=True)
class Shared:
    """The running digest of the replicated part, and from where to where it lies, seen from the start of a chunk."""

    hasher: Any
    start: int
    end: int

    def update(self, piece: memoryview, at: int) -> None:
        """Take in what of a piece at offset `at` of the chunk belongs to it."""
        self.hasher.update(piece[max(self.start - at, 0) : max(self.end - at, 0)])


def _read_chunk(chunk: memoryview, shared: Shared | None = None) -> tuple[str, str]:
    """Return digest and sums of a chunk, each piece read from memory once."""
    hasher, sums = digests.new_chunk(), Sums(numpy.frombuffer(chunk, dtype=numpy.uint8).ctypes.data, len(chunk))
    for at in range(0, len(chunk), PIECE_BYTES):
        piece = chunk[at : at + PIECE_BYTES]
        hasher.update(piece)
        if shared is not None:
            shared.update(piece, at)
        sums.add(at)
    return str(hasher.hexdigest()), sums.text()


def _prelude(handle: int, path: Path) -> Prelude | None:
    """Return the prelude of a slot that is ready, None of one that is being written."""
    try:
        with copying.tier_errors(path):
            found = Prelude.read(os.pread(handle, layout.PRELUDE_BYTES, 0), path)
            size = os.fstat(handle).st_size
    except CorruptSnapshot as error:
        raise RecordUnusable(str(error)) from error
    if found.state != layout.READY:
        return None
    if found.total != size:
        raise RecordUnusable(f"{path} is {size} bytes long and should be {found.total}.")
    return found


def _still_named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    """Whether it is a regular file: a link or a pipe under the name of a shard is none."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _has_record(path: Path) -> bool:
    try:
        path.with_suffix(RECORD_SUFFIX).lstat()
    except OSError:
        return False
    return True


def _names(memory: Path) -> list[str]:
    try:
        return opening.names(memory)
    except OSError:
        return []
