"""What does a commit record say, and can it be believed? A trainer writes it, so nothing in it is taken for granted."""

import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.errors import CopyMissing, TierUnreachable
from reliability.tiers import digests, opening

LIMIT_BYTES = 16 * 2**20
CHECK = "check"
_CHUNK = re.compile("[0-9a-f]{32}")
_SECONDS = ("taken_at", "stall_s", "drain_s")


class RecordUnusable(CopyMissing):
    """There is a file where a commit record belongs, but it is none: the shard does not count."""

    code = "corrupt"
    hint = "The program in the container left it there; the shard is passed over."


def read(path: Path) -> dict[str, Any]:
    """Return a commit record, its fields checked. Raises CopyMissing, RecordUnusable, TierUnreachable."""
    try:
        raw = opening.small(path, LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CopyMissing(f"{path} is no commit record: {error.strerror}.") from error
    except PermissionError as error:
        raise TierUnreachable(f"{path} cannot be read: {error.strerror}.") from error
    except OSError as error:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LIMIT_BYTES:
            raise RecordUnusable(f"{path} is no commit record: {error.strerror}.") from error
        raise TierUnreachable(f"{path} cannot be read: {error.strerror}.") from error
    record = parsed(path, raw)
    said = record.pop(CHECK, None)
    if said != _check_of(record) and (said is not None or record.get("format") in GUARDED):
        raise RecordUnusable(f"{path} is no commit record: it is damaged.")
    return record


GUARDED = ("stepkeeper-2",)
"""Formats whose records always say how they can be checked."""


def guarded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with what guards it against a flipped bit: the CRC-32 of its canonical form."""
    plain = {name: value for name, value in record.items() if name != CHECK}
    return {**plain, CHECK: _check_of(plain)}


def _check_of(record: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(record, sort_keys=True, separators=(',', ':')).encode()):08x}"


def parsed(place: object, raw: bytes) -> dict[str, Any]:
    """Return the commit record that these bytes are. Raises RecordUnusable naming the place."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RecordUnusable(f"{place} is no commit record: it is not JSON.") from error
    return checked(place, record)


def checked(place: object, record: object) -> dict[str, Any]:
    """Return a commit record that was decoded. Raises RecordUnusable naming the place."""
    if not isinstance(record, dict):
        raise RecordUnusable(f"{place} is no commit record: it is not an object.")
    size = record.get("size_bytes")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63:
        raise RecordUnusable(f"{place} is no commit record: its size_bytes is no size.")
    if not isinstance(record.get("digest"), str) or not digests.PATTERN.fullmatch(record["digest"]):
        raise RecordUnusable(f"{place} is no commit record: its digest is no digest.")
    for name in _SECONDS:
        if not _is_time(record.get(name)):
            raise RecordUnusable(f"{place} is no commit record: its {name} is no time.")
    generation, chunks = record.get("generation"), record.get("chunks")
    if generation is not None and (not isinstance(generation, int) or isinstance(generation, bool)):
        raise RecordUnusable(f"{place} is no commit record: its generation is no number.")
    if "chunks" in record and not _are_digests(chunks):
        raise RecordUnusable(f"{place} is no commit record: its chunks are no digests.")
    return record


def _are_digests(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and _CHUNK.fullmatch(each) for each in value)


def _is_time(value: object) -> bool:
    if value is None:
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= float(value) < 1e12 and math.isfinite(float(value))  # type: ignore[arg-type]
