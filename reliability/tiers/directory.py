"""A tier that is a folder: the node's memory tier, its SSD, or a storage node that is mounted.

A shard `key` is the file `<root>/<key>.snap`; it exists only through `<root>/<key>.json`, its commit record, which is
written last and removed first.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.errors import CopyMissing, InvalidInput
from reliability.tiers import copying, opening, records

DATA_SUFFIX = ".snap"
RECORD_SUFFIX = ".json"
ABANDONED_PART_S = 3600.0
Record = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class DirectoryTier:
    """Shards of one job below `root`.

    Only `root` itself is created, never its parent: a storage node that is not mounted must not be mistaken
    for an empty folder of the local disk. `owner` keeps part files of several writers apart; with `private` the
    folder is for the agent's user alone.
    """

    def __init__(self, root: Path, *, owner: str = "", private: bool = False) -> None:
        self.root = root
        self._private = private
        self.owner = owner

    def put(self, source: Path, key: str, *, digest: str, record: Record | None = None) -> int:
        """Store a file under a key with its commit record. The same content stored twice is stored once.

        A `record` that is called is called when the file is durable: it may say how long that took.
        """
        data, commit = self.data_path(key), self._record_path(key)
        with contextlib.suppress(CopyMissing):
            if self.record(key).get("digest") == digest:
                return data.stat().st_size
        self._make_folder(data.parent)
        with copying.tier_errors(commit):
            opening.remove(commit)
        size = copying.copy_verified(source, data, digest=digest, owner=self.owner)
        said = record() if callable(record) else record or {}
        copying.write_json(commit, {**said, "size_bytes": size, "digest": digest}, owner=self.owner)
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
        with copying.tier_errors(self.root):
            records = [path for path in self.root.rglob(f"*{RECORD_SUFFIX}") if path.with_suffix(DATA_SUFFIX).exists()]
        keys = (path.relative_to(self.root).with_suffix("").as_posix() for path in records)
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Remove a shard, its record first, so that it never counts without its bytes."""
        for path in (self._record_path(key), self.data_path(key)):
            with copying.tier_errors(path):
                opening.remove(path)

    def sweep(self, now: float | None = None) -> int:
        """Remove part files that this owner left, and those of any writer that nobody touched for an hour."""
        removed = 0
        own = copying.part_path(Path("x"), self.owner).name.removeprefix("x")
        for part in self.root.rglob(f"*{copying.PART_SUFFIX}"):
            with contextlib.suppress(OSError):
                old = (now or time.time()) - part.stat().st_mtime > ABANDONED_PART_S
                if old or (self.owner and part.name.endswith(own)):
                    part.unlink()
                    removed += 1
        return removed

    def data_path(self, key: str) -> Path:
        """Return the path of a key's shard. Raises InvalidInput for a key that could leave the folder."""
        if not _KEY.fullmatch(key) or ".." in key:
            raise InvalidInput("key", f"{key!r} is not a key", hint="Letters, digits and ._- in parts divided by '/'.")
        return self.root / f"{key}{DATA_SUFFIX}"

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
