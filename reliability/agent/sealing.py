"""What makes a shard in memory count for the whole system: its digest, computed once, and the record that names it.

A trainer only copies; whoever reads the slot first computes the digests of its chunks, and the sums that a trainer
checks by, and writes the commit record beside it. Nothing in a slot is trusted, and the trainer may write it over at
any moment: it is looked at again after it was read, and what is no longer the same was never sealed.
"""

import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy  # noqa: F401 - sums.py adds with it when it is there

from reliability.errors import CopyMissing
from reliability.tiers import copying, digests, opening, records
from reliability.tiers.directory import DATA_SUFFIX, RECORD_SUFFIX
from reliability.tiers.records import RecordUnusable
from reliability.trainer import layout
from reliability.trainer.errors import CorruptSnapshot
from reliability.trainer.folder import Shard
from reliability.trainer.layout import Prelude
from reliability.trainer.sums import Sums, text_of


def unsealed(memory: Path) -> list[tuple[Shard, Path]]:
    """Return the shards in memory that have no record yet, newest first."""
    found = []
    for name in _names(memory):
        path = memory / name
        shard = Shard.of(path) if name == f"{name.partition('.')[0]}{DATA_SUFFIX}" else None
        if shard is not None and shard.stem + DATA_SUFFIX == name and not _has_record(path):
            found.append((shard, path))
    return sorted(found, key=lambda item: item[0], reverse=True)


def seal(path: Path, *, job: str) -> bool:
    """Write the commit record of a shard in memory; False when it is none (any more).

    Raises RecordUnusable for a file that only looks like a shard, TierError when the record cannot be written.
    """
    with copying.tier_errors(path):
        handle = opening.regular(path)
    try:
        before = _prelude(handle, path)
        if before is None:
            return False
        record = _record(handle, path, before, job)
        if _prelude(handle, path) != before or not _still_named(handle, path):
            return False
    finally:
        os.close(handle)
    with copying.tier_errors(path):
        opening.replace(path.with_suffix(RECORD_SUFFIX), copying.json_bytes(records.guarded(record)), mode=0o600)
    return True


def _record(handle: int, path: Path, prelude: Prelude, job: str) -> dict[str, Any]:
    shard = Shard.of(path)
    if shard is None:
        raise CopyMissing(f"{path} is not named as a shard.")
    with copying.tier_errors(path):
        mapped = mmap.mmap(handle, prelude.total, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    chunks, sums = [], []
    with mapped:
        header = _header(mapped, path, prelude)
        for chunk, added in _chunks(mapped):
            chunks.append(chunk)
            sums.append(added)
    if tuple(header.get(name) for name in ("epoch", "step", "rank")) != (shard.epoch, shard.step, shard.rank):
        raise RecordUnusable(f"{path} does not hold the shard it is named after.")
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
        "taken": header.get("taken"),
        "failed": header.get("failed"),
        "chunks": chunks,
        "sums": sums,
    }


def _header(mapped: mmap.mmap, path: Path, prelude: Prelude) -> dict[str, Any]:
    view = memoryview(mapped)
    try:
        head = view[: prelude.data_at]
        try:
            return layout.read_header(prelude, head, path)[0]
        finally:
            head.release()
    except CorruptSnapshot as error:
        raise RecordUnusable(str(error)) from error
    finally:
        view.release()


def _chunks(mapped: mmap.mmap) -> Iterator[tuple[str, str]]:
    """Yield digest and sums of each chunk."""
    array = sys.modules["numpy"].frombuffer(mapped, dtype="u1")
    address, view, adder = array.ctypes.data, memoryview(mapped), Sums()
    try:
        for start in range(0, len(view), digests.CHUNK_BYTES):
            piece = view[start : start + digests.CHUNK_BYTES]
            yield digests.chunk(piece), text_of(adder.of(address + start, len(piece)))
            piece.release()
    finally:
        view.release()
        del array


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
