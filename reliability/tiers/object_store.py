"""A tier on an object store: S3, GCS or Azure.

A shard is stored as numbered parts, each an object of its own that is there whole or not at all, under a name with the
shard's digest and its writer. It exists only through the manifest of its step, which is written last and
conditionally (manifests.py). So there are no unfinished uploads that nobody can list: parts that no manifest lists are
taken up again by the next try at the same content, and are swept when nobody will.
"""

import contextlib
import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from reliability.domain.snapshots import EpochStart
from reliability.errors import CopyMissing, DigestMismatch, TierError, TierFull, TierUnreachable
from reliability.ports import Record
from reliability.tiers import copying, digests, lines, manifests, owners, records
from reliability.tiers.bucket import Bucket, Found
from reliability.tiers.directory import ABANDONED_PART_S, DATA_SUFFIX, checked_key
from reliability.tiers.pacing import Pace
from reliability.tiers.records import RecordUnusable

PART_BYTES = 16 * 2**20
AT_ONCE = 4
PARTS_FOLDER = "parts"
RECORD_NAME = "record.json"
_NAME_CHARACTERS = 16
_MD5 = re.compile(r"[0-9a-f]{32}")
_SAFE = re.compile(r"[^A-Za-z0-9_-]")

T = TypeVar("T")
R = TypeVar("R")


class ObjectTier:
    """Shards of one job below a URL. `owner` is the node that writes; `part_bytes` how large an object becomes."""

    def __init__(
        self, bucket: Bucket, *, owner: str = "", pace: Pace | None = None, part_bytes: int = PART_BYTES
    ) -> None:
        self.bucket = bucket
        self.owner = owner
        self._pace = pace or Pace()
        self._part_bytes = part_bytes
        self._listed: dict[tuple[str, str], list[str]] = {}

    def place(self, key: str) -> str:
        """Return the address by which reports and orders name a key."""
        return f"{self.bucket.url}/{checked_key(key)}{DATA_SUFFIX}"

    def claim(self, job_key: str, *, ranks: int) -> None:
        """Write down whose place this is, unless it is written already. Raises TierConflict when it is another's."""
        owners.claim(self.bucket.url, self, job_key, ranks=ranks, is_empty=lambda: not self.keys(""))

    def ranks(self) -> int:
        """Return how many ranks the job has whose place this is; 0 when nobody said so."""
        return owners.ranks(self)

    def said(self, name: str) -> bytes | None:
        """Return what a small object beside the parts holds, None when there is none. Raises TierUnreachable."""
        with contextlib.suppress(CopyMissing):
            return self.bucket.get(name)
        return None

    def say(self, name: str, content: bytes, *, anew: bool) -> None:
        """Write a small object beside the parts; not `anew`: unless there is one. Raises TierError."""
        if anew:
            self.bucket.put(name, content)
        else:
            self.bucket.write(name, content, replacing=None)

    def note_start(self, start: EpochStart) -> None:
        """Keep how an attempt began; what is kept of it already stays."""
        self.bucket.write(lines.name_of(start.epoch), lines.composed(start), replacing=None)

    def starts(self) -> Sequence[EpochStart]:
        """Return how attempts began, of those that are kept here."""
        return lines.parsed(self.bucket.get(each.path) for each in self.bucket.listed(lines.FOLDER))

    def put(self, source: Path, key: str, *, digest: str, record: Record | None = None) -> int:
        """Store a file under a key, part by part, and list it in the manifest last. Parts that are there are kept."""
        path, name = manifests.place_of(checked_key(key))
        held = self._held(key)
        if held and held["digest"] == digest and self._is_whole(held):
            return int(held["size_bytes"])
        folder = self._folder(key, digest)
        try:
            size = self._send(source, folder, digest)
        except (DigestMismatch, TierFull):
            with contextlib.suppress(TierError):
                self._remove_folder(folder)  # of no use to a later try, and in the way where room is short
            raise
        said = record() if callable(record) else record or {}
        beside = json.dumps({**said, "size_bytes": size, "digest": digest}, separators=(",", ":")).encode()
        self.bucket.put(f"{folder}/{RECORD_NAME}", beside)
        entry = {
            "size_bytes": size,
            "digest": digest,
            "owner": self.owner,
            "parts": folder,
            "part_bytes": self._part_bytes,
            "record": _digest(beside),
        }
        if not self._is_whole(entry):
            raise TierUnreachable(f"{self.bucket.url}/{folder} does not hold what was sent; it is sent again.")
        manifests.change(self.bucket, path, lambda entries: manifests.with_entry(entries, name, entry))
        if held and held["parts"] != folder:
            self._remove_folder(str(held["parts"]))
        return size

    def get(self, key: str, target: Path, *, digest: str) -> int:
        """Copy a listed shard to `target`, verified on the way."""
        entry = self.record(key)
        if entry["digest"] != digest:
            raise DigestMismatch(f"{self.place(key)} was committed with {entry['digest']}, wanted is {digest}.")
        return copying.gathered(self.pieces(key), target, digest=digest, owner=self.owner)

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of a listed shard in order; raises DigestMismatch at the end when it is not what it was."""
        entry, size = self._entry(key), 0
        hasher = digests.hasher_like(entry["digest"])
        for piece in _ahead(self.bucket.get, _paths(entry)):
            hasher.update(piece)
            size += len(piece)
            yield piece
        copying.compare(self.place(key), hasher.text(), entry["digest"])
        if size != entry["size_bytes"]:
            raise DigestMismatch(f"{self.place(key)} holds {size} bytes, committed were {entry['size_bytes']}.")

    def record(self, key: str) -> dict[str, Any]:
        """Return what was kept beside a listed shard. Raises CopyMissing, RecordUnusable for what is none."""
        entry, place = self._entry(key), self.place(key)
        raw = self.bucket.get(f"{entry['parts']}/{RECORD_NAME}")
        if _digest(raw) != entry["record"]:
            raise RecordUnusable(f"{place} has a record that is not what was written.")
        return {**records.parsed(place, raw), "size_bytes": entry["size_bytes"], "digest": entry["digest"]}

    def _entry(self, key: str) -> dict[str, Any]:
        """Return the entry of a key in its manifest. Raises CopyMissing, RecordUnusable."""
        path, name = manifests.place_of(checked_key(key))
        entry = manifests.read(self.bucket, path).entries.get(name)
        if entry is None:
            raise CopyMissing(f"{self.bucket.url}/{path} lists no {self.place(key)}.")
        return _checked(self.place(key), entry)

    def keys(self, prefix: str) -> Sequence[str]:
        """Return the listed keys that begin with a prefix, sorted. A manifest that is none lists nothing.

        A manifest is read again only when its tag has changed: every node looks at all of them after every copy.
        """
        known, self._listed = self._listed, {}
        for each in self.bucket.listed(manifests.FOLDER):
            found = known.get((each.path, each.e_tag)) if each.e_tag else None
            if found is None:
                with contextlib.suppress(RecordUnusable):
                    found = manifests.keys_of(each.path, manifests.read(self.bucket, each.path).entries)
            self._listed[each.path, each.e_tag] = found or []
        return sorted(key for found in self._listed.values() for key in found if key.startswith(prefix))

    def damaged(self) -> Sequence[str]:
        """Return what is wrong with manifests that cannot be believed."""
        found = []
        for each in self.bucket.listed(manifests.FOLDER):
            try:
                manifests.read(self.bucket, each.path)
            except RecordUnusable as error:
                found.append(error.message)
        return found

    def delete(self, key: str) -> None:
        """Take a key off its manifest, then remove its parts."""
        path, name = manifests.place_of(checked_key(key))
        manifests.change(self.bucket, path, lambda entries: {each: entries[each] for each in entries if each != name})
        self._remove_folder(f"{PARTS_FOLDER}/{key}")

    def sweep(self, wanted: Collection[str] = ()) -> int:
        """Remove parts that no manifest lists: this owner's unless the key is `wanted`, others' after an hour.

        Ages are told by the store's clock alone. Empty manifests go after an hour too. Returns the objects removed.
        """
        parts, lists = list(self.bucket.listed(PARTS_FOLDER)), list(self.bucket.listed(manifests.FOLDER))
        now = max((each.modified_at for each in [*parts, *lists]), default=None)
        if now is None:
            return 0
        old = now - timedelta(seconds=ABANDONED_PART_S)
        listed = self._listed_folders(lists, old)
        touched: dict[str, datetime] = {}  # an upload may take hours: its newest part says that it goes on
        for part in parts:
            folder = _folder_of(part)
            touched[folder] = max(part.modified_at, touched.get(folder, part.modified_at))
        garbage = {
            folder
            for folder, at in touched.items()
            if folder not in listed and (at < old or self._is_left_over(folder, wanted))
        }
        gone = [part.path for part in parts if _folder_of(part) in garbage]
        self.bucket.delete(gone)
        return len(gone)

    def _listed_folders(self, lists: Iterable[Found], old: datetime) -> set[str]:
        """Return the folders that manifests list; remove manifests that have listed nothing since `old`."""
        listed: set[str] = set()
        for each in lists:
            with contextlib.suppress(RecordUnusable):
                entries = manifests.read(self.bucket, each.path).entries
                listed |= {str(entry.get("parts")) for entry in entries.values()}
                if not entries and each.modified_at < old:
                    self.bucket.delete([each.path])
        return listed

    def _is_left_over(self, folder: str, wanted: Collection[str]) -> bool:
        key, _, name = folder.removeprefix(f"{PARTS_FOLDER}/").rpartition("/")
        return bool(self.owner) and name.partition(".")[2] == _SAFE.sub("_", self.owner) and key not in wanted

    def _held(self, key: str) -> dict[str, Any] | None:
        with contextlib.suppress(CopyMissing):  # an unusable record is one too
            self.record(key)
            return self._entry(key)
        return None

    def _folder(self, key: str, digest: str) -> str:
        content = digest.rpartition(":")[2][:_NAME_CHARACTERS]
        return f"{PARTS_FOLDER}/{key}/{content}.{_SAFE.sub('_', self.owner)}"

    def _remove_folder(self, folder: str) -> None:
        self.bucket.delete([each.path for each in self.bucket.listed(folder)])

    def _is_whole(self, entry: Mapping[str, Any]) -> bool:
        """Whether all parts of an entry are there with their sizes."""
        found = {each.path: each.size_bytes for each in self.bucket.listed(str(entry["parts"]))}
        return f"{entry['parts']}/{RECORD_NAME}" in found and all(
            found.get(path) == size for path, size in zip(_paths(entry), _sizes(entry), strict=True)
        )

    def _send(self, source: Path, folder: str, digest: str) -> int:
        """Bring the parts of a file to the store, several at once; return its size once its digest was right."""
        there = {each.path: each for each in self.bucket.listed(folder)}
        hasher, size = digests.hasher_like(digest), 0

        def piecewise() -> Iterator[tuple[str, bytes]]:
            nonlocal size
            for index, piece in enumerate(_read(source, self._part_bytes)):
                hasher.update(piece)
                size += len(piece)
                yield _path(folder, index), piece

        for _ in _ahead(lambda each: self._send_part(*each, there.get(each[0])), piecewise()):
            pass
        copying.compare(source, hasher.text(), digest)
        return size

    def _send_part(self, path: str, piece: bytes, there: Found | None) -> None:
        if there is not None and there.size_bytes == len(piece) and self._holds(path, there.e_tag, piece):
            return
        self._pace.take(len(piece))
        tag = self.bucket.put(path, piece)
        if not self.bucket.refuses_other_content and not self._holds(path, tag, piece):
            raise TierUnreachable(f"{self.bucket.url}/{path} was not stored as it was sent; it is sent again.")

    def _holds(self, path: str, e_tag: str, piece: bytes) -> bool:
        """Whether the store holds these bytes: its tag is their MD5, or what it hands out is the same."""
        if _MD5.fullmatch(tag := e_tag.strip('"')) and tag == hashlib.md5(piece, usedforsecurity=False).hexdigest():
            return True
        with contextlib.suppress(CopyMissing):
            return self.bucket.get(path) == piece
        return False


def _checked(place: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose fields make sense. Raises RecordUnusable."""
    checked = records.checked(place, dict(entry))
    part_bytes = checked.get("part_bytes")
    said = isinstance(checked.get("parts"), str) and isinstance(checked.get("record"), str)
    if not isinstance(part_bytes, int) or part_bytes < 1 or not said:
        raise RecordUnusable(f"{place} is no commit record: it names no parts.")
    return checked


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def _sizes(entry: Mapping[str, Any]) -> list[int]:
    whole, rest = divmod(int(entry["size_bytes"]), int(entry["part_bytes"]))
    return [int(entry["part_bytes"])] * whole + ([rest] if rest else [])


def _paths(entry: Mapping[str, Any]) -> list[str]:
    return [_path(str(entry["parts"]), index) for index in range(len(_sizes(entry)))]


def _path(folder: str, index: int) -> str:
    return f"{folder}/{index:06d}"


def _folder_of(part: Found) -> str:
    return part.path.rpartition("/")[0]


def _read(source: Path, part_bytes: int) -> Iterator[bytes]:
    """Yield a file in parts. The library sends from their memory without a copy, so that each has its own."""
    with copying.opened(source) as reader:
        while True:
            with copying.tier_errors(source):
                piece = reader.read(part_bytes)
                while piece and len(piece) < part_bytes and (more := reader.read(part_bytes - len(piece))):
                    piece += more
            if not piece:
                return
            yield piece


def _ahead(do: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `do` of each item in order, `AT_ONCE` of them at work; what is left undone at an error is waited for."""
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="parts") as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            if len(waiting) >= AT_ONCE:
                yield waiting.popleft().result()
            waiting.append(pool.submit(do, item))
        while waiting:
            yield waiting.popleft().result()
