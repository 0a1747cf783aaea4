"""Which shards of a step are on an object store? One manifest a step says it, and what it does not list is not there.

Nodes add their ranks to the same manifest: each reads it, adds its own, and writes it on the condition that nobody
wrote meanwhile; who was overtaken reads it again. It carries a digest of itself, so that a damaged one is told from a
good one before anything in it is believed.
"""

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reliability.errors import CopyMissing, TierConflict, TierUnreachable
from reliability.tiers import sealed
from reliability.tiers.bucket import Bucket, Version
from reliability.tiers.records import RecordUnusable

FORMAT = "stepkeeper-manifest-1"
FOLDER = "manifests"
SUFFIX = ".json"
TRIES = 60
FIRST_WAIT_S = 0.01
LONGEST_WAIT_S = 1.0
_KEY = re.compile(r"(.+?)-r(\d{1,8})")

Entries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The shards of one step by rank, and the version that was read (None: there is no object)."""

    entries: Entries
    version: Version | None


def place_of(key: str) -> tuple[str, str]:
    """Return the path of the manifest that lists a key, and the key's name in it."""
    found = _KEY.fullmatch(key)
    step, name = (found[1], found[2]) if found else (key, "")
    return f"{FOLDER}/{step}{SUFFIX}", name


def keys_of(path: str, entries: Entries) -> list[str]:
    """Return the keys that a manifest at this path lists."""
    step = path.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    return [f"{step}-r{name}" if name else step for name in entries]


def read(bucket: Bucket, path: str) -> Manifest:
    """Return a manifest; an empty one when there is none. Raises RecordUnusable, TierUnreachable."""
    try:
        raw, version = bucket.read(path)
    except CopyMissing:
        return Manifest(entries={}, version=None)
    return Manifest(entries=parsed(f"{bucket.url}/{path}", path, raw), version=version)


def change(bucket: Bucket, path: str, alter: Callable[[Entries], Entries]) -> None:
    """Replace a manifest by an altered one, however many others do so at the same time.

    What cannot be read is replaced as if it were empty. Raises TierConflict when `alter` does, TierFull,
    TierUnreachable.
    """
    wait_s = FIRST_WAIT_S
    for _ in range(TRIES):
        found = _read_or_empty(bucket, path)
        altered = alter(found.entries)
        if altered == found.entries and (altered or found.version is None):
            return
        if bucket.write(path, composed(path, altered), replacing=found.version):
            return
        time.sleep(random.uniform(0, wait_s))  # noqa: S311 - spreads writers, keeps no secret
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    raise TierUnreachable(f"{bucket.url}/{path} was written by others {TRIES} times in a row.")


def _read_or_empty(bucket: Bucket, path: str) -> Manifest:
    try:
        return read(bucket, path)
    except RecordUnusable:
        return Manifest(entries={}, version=bucket.read(path)[1])


def with_entry(entries: Entries, name: str, entry: Mapping[str, Any]) -> Entries:
    """Return the entries with one more, or another in its place.

    Raises TierConflict when another writer holds the place with other content: a rank of an attempt runs on one node.
    """
    held = entries.get(name)
    if held and held.get("owner") != entry.get("owner") and held.get("digest") != entry.get("digest"):
        raise TierConflict(f"Rank {name or 'of this key'} was stored by {held.get('owner')!r} with other content.")
    return {**entries, name: entry}


def composed(path: str, entries: Entries) -> bytes:
    """Return the bytes of a manifest."""
    return sealed.composed(
        {"format": FORMAT, "path": path, "shards": {name: entries[name] for name in sorted(entries)}}
    )


def parsed(place: str, path: str, raw: bytes) -> Entries:
    """Return the entries of a manifest. Raises RecordUnusable naming the place."""
    said = sealed.parsed(raw)
    shards = said.get("shards") if said and said.get("path") == path else None
    if not isinstance(shards, dict):
        raise RecordUnusable(f"{place} is no manifest, or not what was written.")
    return shards
