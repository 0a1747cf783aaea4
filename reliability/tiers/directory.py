"""A tier that is a folder: the node's memory tier, its SSD, or a storage node that is mounted.

A shard `key` is the file `<root>/<key>.snap`; it exists only through `<root>/<key>.json`, its commit record, which is
written last and removed first.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.domain.snapshots import EpochStart
from reliability.errors import CopyMissing, InvalidInput
from reliability.ports import Record, TierStore
from reliability.tiers import copying, direct, lines, opening, owners, records
from reliability.tiers.pacing import Pace

DATA_SUFFIX = ".snap"
RECORD_SUFFIX = ".json"
VOID_SUFFIX = ".void"
ABANDONED_PART_S = 3600.0
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def checked_key(key: str) -> str:
    """Return a key that stays within its tier. Raises InvalidInput for any other."""
    if not _KEY.fullmatch(key) or ".." in key:
        raise InvalidInput("key", f"{key!r} is not a key", hint="Letters, digits and ._- in parts divided by '/'.")
    return key


def _pass_over_what_is_gone(error: OSError) -> None:
    """A folder that is not there, or not ours to read, holds nothing; any other trouble is raised."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
        raise error


class DirectoryTier:
    """Shards of one job below `root`.

    Only `root` itself is created, never its parent: a storage node that is not mounted must not be mistaken
    for an empty folder of the local disk. `owner` keeps part files of several writers apart; with `private` the
    folder is for the agent's user alone.
    """

    def __init__(self, root: Path, *, owner: str = "", private: bool = False, pace: Pace | None = None) -> None:
        self.root = root
        self._private = private
        self.owner = owner
        self._pace = pace

    def claim(self, job_key: str, *, ranks: int) -> None:
        """Write down whose place this is, unless it is written already. Raises TierConflict when it is another's."""
        owners.claim(str(self.root), self, job_key, ranks=ranks, is_empty=lambda: not self.keys(""))

    def set_aside(self) -> Path:
        """Move the whole folder out of the way, nothing of it lost; return where it lies now."""
        aside = self.root.with_name(f"{self.root.name}.aside-{secrets.token_hex(4)}")
        with copying.tier_errors(self.root):
            self.root.rename(aside)
            opening.sync_folder(aside.parent)
        return aside

    def ranks(self) -> int:
        """Return how many ranks the job has whose place this is; 0 when nobody said so."""
        return owners.ranks(self)

    def said(self, name: str) -> bytes | None:
        """Return what a small file beside the shards holds, None when there is none. Raises TierError."""
        path = self.root / name
        with contextlib.suppress(CopyMissing), copying.tier_errors(path):
            if self.root.is_dir():
                return opening.small(path, records.LIMIT_BYTES)
        return None

    def say(self, name: str, content: bytes, *, anew: bool) -> None:
        """Write a small file beside the shards; not `anew`: unless there is one. Raises TierError."""
        path = self.root / name
        self._make_folder(self.root)
        with copying.tier_errors(path):
            opening.replace(path, content) if anew else opening.create_once(path, content)

    def note_start(self, start: EpochStart) -> None:
        """Keep how an attempt began; what is kept of it already stays."""
        path = self.root / lines.name_of(start.epoch)
        self._make_folder(path.parent)
        with copying.tier_errors(path):
            opening.create_once(path, lines.composed(start))

    def starts(self) -> Sequence[EpochStart]:
        """Return how attempts began, of those that are kept here."""
        folder = self.root / lines.FOLDER
        with copying.tier_errors(folder):
            found = sorted(folder.glob(f"*{lines.SUFFIX}"))
            return lines.parsed(opening.small(path, records.LIMIT_BYTES) for path in found)

    def put(self, source: Path, key: str, *, digest: str, record: Record | None = None) -> int:
        """Store a file under a key with its commit record. The same content stored twice is stored once."""

        def copy(data: Path) -> int:
            return copying.copy_verified(source, data, digest=digest, owner=self.owner, pace=self._pace)

        with contextlib.suppress(CopyMissing):
            if self.record(key).get("digest") == digest:
                return self.data_path(key).stat().st_size
        return self._put(key, copy, lambda: {**(record() if callable(record) else record or {}), "digest": digest})

    def put_from_memory(
        self, content: memoryview, key: str, record: Callable[[], Mapping[str, Any]], *, hash_again: bool = True
    ) -> int:
        """Store what lies in memory under a key, straight from there, with the commit record that `record` returns.

        Without `hash_again` that is asked last: who computes it reads the same memory meanwhile, or did a moment ago.
        """

        def write(data: Path) -> int:
            return direct.write(content, data, record, owner=self.owner, hash_again=hash_again)

        return self._put(key, write, record)

    def put_written(self, key: str, write: Callable[[Path], int], record: Callable[[], Mapping[str, Any]]) -> int:
        """Store what `write` writes to a path, durable, with the record that is asked for then; return its size."""
        return self._put(key, write, record)

    def throw_away(self, key: str) -> None:
        """Remove a shard that must never be used and leave word of it, for copies of it on the next tier."""
        path = self.data_path(key)
        with copying.tier_errors(path):
            opening.create_once(path.with_suffix(VOID_SUFFIX), b"{}")
        self.delete(key)

    def thrown_away(self) -> Sequence[str]:
        """Return the keys of which word was left that they must never be used."""
        with copying.tier_errors(self.root):
            found = [path.relative_to(self.root) for path in self.root.rglob(f"*{VOID_SUFFIX}")]
        return sorted(path.with_suffix("").as_posix() for path in found)

    def forget_thrown_away(self, key: str) -> None:
        """Remove the word that was left of a key."""
        path = self.data_path(key).with_suffix(VOID_SUFFIX)
        with copying.tier_errors(path):
            opening.remove(path)

    def _put(self, key: str, write: Callable[[Path], int], record: Callable[[], Mapping[str, Any]]) -> int:
        data, commit = self.data_path(key), self._record_path(key)
        self._make_folder(data.parent)
        with copying.tier_errors(commit):
            opening.remove(commit)
        size = write(data)
        copying.write_json(commit, records.guarded({**record(), "size_bytes": size}), owner=self.owner)
        return size

    def place(self, key: str) -> str:
        """Return the address by which reports and orders name a key."""
        return str(self.data_path(key))

    def adopt(
        self,
        source: TierStore,
        source_key: str,
        key: str,
        *,
        digest: str,
        record: Mapping[str, Any],
        told: Callable[[int], object] = int,
    ) -> int:
        """Bring what another tier holds under `source_key` into this one, verified on the way.

        `told` is called with the bytes of each piece that came. Raises CopyMissing, DigestMismatch, TierError.
        """
        source.record(source_key)  # without a good one nobody could read the shard
        return self.take_in(source.pieces(source_key), key, digest=digest, record=record, told=told)

    def take_in(
        self,
        pieces: Iterable[bytes | memoryview],
        key: str,
        *,
        digest: str,
        record: Mapping[str, Any],
        told: Callable[[int], object] = int,
    ) -> int:
        """Store what comes in pieces under a key with its commit record, verified on the way; return its size in bytes.

        Raises CopyMissing, DigestMismatch, TierError.
        """
        data, commit = self.data_path(key), self._record_path(key)
        self._make_folder(data.parent)
        with copying.tier_errors(commit):
            opening.remove(commit)
        size = copying.gathered(pieces, data, digest=digest, owner=self.owner, told=told)
        copying.write_json(commit, records.guarded({**record, "size_bytes": size, "digest": digest}), owner=self.owner)
        return size

    def get(self, key: str, target: Path, *, digest: str) -> int:
        """Copy a committed shard to `target`, verified on the way."""
        self.record(key)
        return copying.copy_verified(self.data_path(key), target, digest=digest, owner=self.owner)

    def record(self, key: str) -> dict[str, Any]:
        """Return the commit record of a key. Raises CopyMissing when there is none, RecordUnusable for a bad one."""
        record = records.read(self._record_path(key))
        if not self.data_path(key).exists():
            raise CopyMissing(f"The shard of {self._record_path(key)} is gone.")
        return record

    def keys(self, prefix: str) -> Sequence[str]:
        """Return the committed keys that begin with a prefix, sorted; none when the folder does not exist."""
        root, found = str(self.root), []
        with copying.tier_errors(self.root):
            for folder, folders, names in os.walk(root, onerror=_pass_over_what_is_gone):
                there = {name for name in names if name.endswith(DATA_SUFFIX)}
                said = (*names, *folders)  # a record that is a folder is one that cannot be read, not none
                committed = [name.removesuffix(RECORD_SUFFIX) for name in said if name.endswith(RECORD_SUFFIX)]
                below = folder[len(root) :].lstrip("/")
                found += [f"{below}/{key}" if below else key for key in committed if key + DATA_SUFFIX in there]
        return sorted(key for key in found if key.startswith(prefix))

    def damaged(self) -> Sequence[str]:
        """A folder has no lists beside the records themselves."""
        return ()

    def delete(self, key: str) -> None:
        """Remove a shard, its record first, so that it never counts without its bytes."""
        for path in (self._record_path(key), self.data_path(key)):
            with copying.tier_errors(path):
                opening.remove(path)

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of a committed shard in order; raises DigestMismatch at the end when it is damaged."""
        yield from copying.pieces_verified(self.data_path(key), digest=self.record(key)["digest"])

    def sweep(self, wanted: Collection[str] = (), *, now: float | None = None) -> int:
        """Remove part files that this owner left, and those of any writer that nobody touched for an hour.

        A copy into a folder begins anew each time, so that no part of a `wanted` key is of use.
        """
        removed, now = 0, now or self._now()
        own = copying.part_path(Path("x"), self.owner).name.removeprefix("x")
        for part in self.root.rglob(f"*{copying.PART_SUFFIX}"):
            with contextlib.suppress(OSError):
                old = now - part.stat().st_mtime > ABANDONED_PART_S
                if old or (self.owner and part.name.endswith(own)):
                    part.unlink()
                    removed += 1
        return removed

    def _now(self) -> float:
        """Return the time by the clock that dates the files here: the node's own may have been set meanwhile."""
        with contextlib.suppress(OSError), opening.opened_folder(self.root) as folder:
            return opening.dated(f".{self.owner}.now{copying.PART_SUFFIX}", folder=folder)
        return 0.0

    def data_path(self, key: str) -> Path:
        """Return the path of a key's shard. Raises InvalidInput for a key that could leave the folder."""
        return self.root / f"{checked_key(key)}{DATA_SUFFIX}"

    def _record_path(self, key: str) -> Path:
        return self.data_path(key).with_suffix(RECORD_SUFFIX)

    def _make_folder(self, folder: Path) -> None:
        with copying.tier_errors(folder):
            if self._private:
                opening.make_private(self.root)
            for missing in [each for each in (self.root, *self._below(folder)) if not each.exists()]:
                missing.mkdir(exist_ok=True)
                opening.sync_folder(missing.parent)

    def _below(self, folder: Path) -> list[Path]:
        """Return the folders between the root and `folder`, that one included, outermost first."""
        return [self.root / part for part in reversed(folder.relative_to(self.root).parents[:-1])] + (
            [folder] if folder != self.root else []
        )
