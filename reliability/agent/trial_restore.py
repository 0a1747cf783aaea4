"""Would this snapshot really come back? A child of the agent loads every rank's shard into a place of its own.

    python -m reliability.agent.trial_restore run --parent=... < request

Each copy that is named is brought into an empty folder as a restore brings it into memory, verified by its digest; then
every chunk is compared with digest and sums of the commit record, and the header must parse and name this very shard. A
shard is removed before the next one comes. What does not agree is read a second time before it is called bad. Nothing
else is touched: no folder of the job, and no copy.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from reliability.agent.probes import request
from reliability.errors import CopyMissing, DigestMismatch, InvalidInput, TierError, TierFull, TierUnreachable
from reliability.ports import TierStore
from reliability.tiers import choosing, copying, digests
from reliability.tiers.directory import DATA_SUFFIX, DirectoryTier
from reliability.tiers.pacing import Pace
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard
from reliability.trainer import layout
from reliability.trainer.errors import CorruptSnapshot
from reliability.trainer.layout import Prelude
from reliability.trainer.sums import Sums

NICENESS = 10
SPARE_BYTES = 64 * 2**20
"""So much room stays free beside a shard that is loaded."""
OF_THE_COPY = frozenset({"digest_mismatch", "corrupt", "copy_missing"})
"""Errors that say something of the copy itself; all others say that it could not be read now."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One copy of one rank's shard, as the ledger has it."""

    job: str
    shard: Shard
    tier: str
    path: str
    digest: str


def wanted(asked: Mapping[str, Any]) -> list[Wanted]:
    """Return the copies that a request names."""
    return [
        Wanted(
            job=str(asked["job"]),
            shard=Shard(asked["snapshot_epoch"], asked["step"], rank["rank"]),
            tier=source["tier"],
            path=source["path"],
            digest=source["digest"],
        )
        for rank in asked["ranks"]
        for source in rank["sources"]
    ]


def run(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Try every copy; return what was read, what is bad with the reason, and what could not be read now."""
    began = time.monotonic()
    room = DirectoryTier(Path(asked["folder"]), private=True)
    pace = Pace(float(asked.get("bytes_per_s") or 0.0))
    answer: dict[str, Any] = {"read": [], "bad": [], "unread": []}
    for each in wanted(asked):
        where = {"rank": each.shard.rank, "tier": each.tier, "path": each.path}
        try:
            size, again = _tried(each, room, pace.take)
            answer["read"].append({**where, "size_bytes": size, "second_try": again})
        except TierError as error:
            kind = "bad" if error.code in OF_THE_COPY else "unread"
            answer[kind].append({**where, "code": error.code, "message": error.message})
        request.note({**where, "read": len(answer["read"]), "bad": len(answer["bad"])})
    answer["size_bytes"] = sum(each["size_bytes"] for each in answer["read"])
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


def _tried(each: Wanted, room: DirectoryTier, told: Callable[[int], object]) -> tuple[int, bool]:
    """Load a copy, a second time when the first did not agree; return (bytes, whether it took the second)."""
    try:
        return _loaded(each, room, told), False
    except (DigestMismatch, RecordUnusable):
        return _loaded(each, room, told), True


def _loaded(each: Wanted, room: DirectoryTier, told: Callable[[int], object]) -> int:
    tier, key = _place(each)
    record = tier.record(key)
    if record["digest"] != each.digest:
        raise DigestMismatch(f"{each.path} was committed with {record['digest']}, the ledger says {each.digest}.")
    flat = each.shard.flat_key
    try:
        _check_room(room.root, int(record["size_bytes"]))
        size = room.adopt(tier, key, flat, digest=each.digest, record=record, told=told)
        _compare(room.data_path(flat), room.record(flat), each)
        return size
    finally:
        with contextlib.suppress(TierError):
            room.delete(flat)


def _place(each: Wanted) -> tuple[TierStore, str]:
    """Return the tier and the key by which a copy is read. Raises CopyMissing for a place that is not this shard's."""
    key = each.shard.stored_key if each.tier == "storage" else each.shard.flat_key
    try:
        above = choosing.split_place(each.path, each.job, key)
    except InvalidInput as error:
        raise CopyMissing(error.message) from error
    if choosing.is_url(above):
        return choosing.job_tier(above, each.job), key
    root = Path(above) / each.job
    real = os.path.realpath(f"{root / key}{DATA_SUFFIX}")
    if not root.is_absolute() or ".." in root.parts or not real.endswith(f"/{each.job}/{key}{DATA_SUFFIX}"):
        raise CopyMissing(f"{each.path} is not where {each.tier} keeps this shard.")
    if not root.is_dir():
        raise TierUnreachable(f"There is no folder {root} on this node.", hint="Is the storage mounted here?")
    return DirectoryTier(root), key


def _check_room(folder: Path, size: int) -> None:
    with copying.tier_errors(folder):
        space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if free < size + SPARE_BYTES:
        raise TierFull(f"{folder} has {free} bytes free; to load this shard takes {size} and {SPARE_BYTES} to spare.")


def _compare(path: Path, record: Mapping[str, Any], each: Wanted) -> None:
    """Compare every chunk with the record, and have the header parse. Raises DigestMismatch, RecordUnusable.

    A file that no trainer wrote has neither chunks nor a header: its digest is all there is to compare.
    """
    if "chunks" not in record:
        return
    with (
        copying.tier_errors(path),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
    ):
        view = memoryview(mapped)
        try:
            _compare_chunks(view, record, each.path)
            _check_header(view, each)
        finally:
            view.release()


def _compare_chunks(view: memoryview, record: Mapping[str, Any], place: str) -> None:
    chunks, sums = list(record["chunks"]), list(record.get("sums") or ())
    starts = range(0, len(view), digests.CHUNK_BYTES)
    if len(chunks) != len(starts) or len(sums) != len(starts):
        raise RecordUnusable(f"{place} has {len(starts)} chunks, its record tells of {len(chunks)}.")
    for number, start in enumerate(starts):
        with view[start : start + digests.CHUNK_BYTES] as chunk:
            if digests.chunk(chunk) != chunks[number]:
                raise DigestMismatch(f"Chunk {number} of {place} does not have the digest of its record.")
            if _sums_of(chunk) != sums[number]:
                raise DigestMismatch(f"Chunk {number} of {place} does not have the sums of its record.")


def _sums_of(chunk: memoryview) -> str:
    """Return the sums by which the trainer checks a chunk."""
    found = Sums(numpy.frombuffer(chunk, dtype=numpy.uint8).ctypes.data, len(chunk))
    found.add_all()
    return found.text()


def _check_header(view: memoryview, each: Wanted) -> None:
    try:
        prelude = Prelude.read(view[: layout.PRELUDE_BYTES], each.path)
        header = layout.read_header(prelude, view[: prelude.data_at], each.path)[0]
    except CorruptSnapshot as error:
        raise RecordUnusable(str(error)) from error
    if prelude.total != len(view) or prelude.state != layout.READY:
        raise RecordUnusable(f"{each.path} was never finished.")
    said = tuple(header.get(name) for name in ("epoch", "step", "rank"))
    if said != (each.shard.epoch, each.shard.step, each.shard.rank):
        raise RecordUnusable(f"{each.path} holds (epoch, step, rank) {said}, not the shard it is named after.")


def main() -> None:
    """Try the copies of a request."""
    _mode, asked = request.take(("run",))
    os.nice(NICENESS)
    request.answer(run(asked))


if __name__ == "__main__":
    main()
