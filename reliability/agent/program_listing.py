"""What lies in one step of a program's snapshot folder, and is it still the same?

The program may do anything there at any moment: every folder is opened itself and never through a link, and what
cannot be part of a snapshot (a link that leads outside, a pipe, a device) is named instead of followed.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reliability.domain import step_paths
from reliability.errors import TierError
from reliability.tiers import opening
from reliability.tiers.step_folder import UnfitStep

DEEPEST = 64
MOST_ENTRIES = 1_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ChangedStep(TierError):
    """The program changed or removed a step while it was read."""

    code = "changed_step"
    transient = True


@dataclass(frozen=True)
class Entry:
    """One file of a step: its path below it, '' for a step that is a file. Size in bytes."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    mode: int


@dataclass(frozen=True)
class Listing:
    """All of one step, by path. `links` are (path, target) of those that stay within the step."""

    name: str
    is_file: bool
    files: tuple[Entry, ...]
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    @property
    def size_bytes(self) -> int:
        """How many bytes its files hold."""
        return sum(entry.size for entry in self.files)

    @property
    def written_at(self) -> float:
        """When it was last written to, by the clock of its file system."""
        return max((entry.mtime_ns for entry in self.files), default=0) / 1e9

    @property
    def stamp(self) -> str:
        """What tells one state of the step from any other."""
        hasher = hashlib.blake2b(digest_size=16)
        for each in (*self.files, *self.folders, *self.links):
            hasher.update(repr(each).encode("utf-8", "surrogatepass"))
        return hasher.hexdigest()

    def changed_since(self, earlier: "Listing") -> list[str]:
        """Return the paths that are new or other than in an earlier listing; what was removed is no change."""
        files = {entry.path for entry in set(self.files) - set(earlier.files)}
        folders, links = set(self.folders) - set(earlier.folders), set(self.links) - set(earlier.links)
        return sorted(files | folders | {path for path, _target in links})


def listed(place: Path, name: str) -> Listing:
    """Return what lies under a name in a folder.

    Raises FileNotFoundError when nothing does, OSError, and UnfitStep, which names what cannot be part of a snapshot.
    """
    with opening.opened_folder(place) as above:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            return Listing(name, True, (_entry("", found),), (), ())
        if not stat.S_ISDIR(found.st_mode):
            raise UnfitStep(f"{place / name} is {_kind(found.st_mode)}.")
        walk = _Walk(place / name)
        walk.enter(os.open(name, _FOLDER, dir_fd=above), "", 0)
        walk.follow_links()
    return Listing(name, False, tuple(sorted(walk.files, key=_path)), tuple(sorted(walk.folders)), tuple(walk.links))


@contextmanager
def opened_step(place: Path, listing: Listing) -> Iterator[int]:
    """Yield a handle of the step's folder, or of the one it lies in when it is a file. Raises OSError."""
    with opening.opened_folder(place) as above:
        if listing.is_file:
            yield above
            return
        handle = os.open(listing.name, _FOLDER, dir_fd=above)
        try:
            yield handle
        finally:
            os.close(handle)


def opened_file(step: int, listing: Listing, entry: Entry) -> int:
    """Return a handle to read one file, having followed no link. Raises OSError, ChangedStep."""
    *folders, name = (entry.path or listing.name).split("/")
    at = step
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=at)
            if at != step:
                os.close(at)
            at = below
        handle = os.open(name, _FILE, dir_fd=at)
    finally:
        if at != step:
            os.close(at)
    found = os.fstat(handle)
    if _entry(entry.path, found) != entry or not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise ChangedStep(f"{listing.name}/{entry.path} changed while it was read.")
    return handle


class _Walk:
    def __init__(self, root: Path) -> None:
        self.files: list[Entry] = []
        self.folders: list[str] = []
        self.links: list[tuple[str, str]] = []
        self._root = root

    def enter(self, handle: int, path: str, depth: int) -> None:
        """Take in an opened folder, which is closed then."""
        try:
            if depth > DEEPEST:
                raise UnfitStep(f"{self._root / path} is nested more than {DEEPEST} folders deep.")
            for name in sorted(os.listdir(handle)):
                self._take(handle, f"{path}{name}", name, depth)
        finally:
            os.close(handle)

    def _take(self, folder: int, path: str, name: str, depth: int) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                self.folders.append(path)
                self.enter(os.open(name, _FOLDER, dir_fd=folder), f"{path}/", depth + 1)
            elif stat.S_ISLNK(found.st_mode):
                self.links.append((path, os.readlink(name, dir_fd=folder)))
            elif stat.S_ISREG(found.st_mode):
                self.files.append(_entry(path, found))
            else:
                raise UnfitStep(f"{self._root / path} is {_kind(found.st_mode)}.")
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}:
                raise
            raise ChangedStep(f"{self._root / path} changed while it was looked at.") from error
        if len(self.files) + len(self.folders) + len(self.links) > MOST_ENTRIES:
            raise UnfitStep(f"{self._root} holds more than {MOST_ENTRIES} files.")

    def follow_links(self) -> None:
        """Once all is taken in: does every link end within the step?"""
        links = dict(self.links)
        for path, target in self.links:
            if not step_paths.stays(path, target, links):
                raise UnfitStep(f"{self._root / path} is a link that leads outside the step: {target}.")


def _entry(path: str, found: os.stat_result) -> Entry:
    return Entry(path, found.st_size, found.st_mtime_ns, found.st_ino, stat.S_IMODE(found.st_mode))


def _path(entry: Entry) -> str:
    return entry.path


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
