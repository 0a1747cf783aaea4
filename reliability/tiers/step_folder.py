"""How are the files of a step written into a folder, so that whatever a shard says nothing is written outside?

Shards come from storage and hold what a program chose. Every folder is opened itself and never through a link, and
links are made only when all shards of the step have been written, after one look at all of them together.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from reliability.domain import step_paths
from reliability.errors import TierError
from reliability.tiers import copying

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IN_THE_WAY = {errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR}


class UnfitStep(TierError):
    """What a program wrote cannot be a snapshot as it is."""

    code = "unfit_step"
    hint = "Write plain files and folders below the step's own folder; the step is passed over."


class StepFolder:
    """A folder, which is there, that the shards of one step are written into. `root` itself may be a link."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._links: dict[str, str] = {}

    def folder(self, path: str) -> None:
        """Make a folder. Raises UnfitStep, TierFull, TierUnreachable, as all of this class does."""
        with self._opened(f"{path}/"):
            pass

    def file(self, path: str, pieces: Iterable[bytes | memoryview], *, mode: int = 0o600) -> bool:
        """Write a file, its owner reading and writing it at least. One that lies there stays: return whether it holds
        the same; all pieces are taken either way."""
        with self._opened(path) as folder:
            name = path.rpartition("/")[2]
            try:
                handle = os.open(name, _NEW, 0o600, dir_fd=folder)
            except FileExistsError:
                return _holds(os.open(name, _OLD, dir_fd=folder), pieces)
            try:
                for piece in pieces:
                    left = memoryview(piece)
                    while left:
                        left = left[os.write(handle, left) :]
                os.fchmod(handle, mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            finally:
                os.close(handle)
            return True

    def link(self, path: str, target: str) -> None:
        """Take note of a link, made by `finish`."""
        if not step_paths.is_below(path) or not step_paths.is_target(target):
            raise UnfitStep(f"The step holds a link that cannot be made: {path!r}.")
        if self._links.setdefault(path, target) != target:
            raise self.unlike(path)

    def finish(self) -> None:
        """Make the links, once all shards are written."""
        for path, target in self._links.items():
            if not step_paths.stays(path, target, self._links):
                raise UnfitStep(f"{self.root / path} is a link that leads outside the step: {target}.")
        for path, target in sorted(self._links.items()):
            name = path.rpartition("/")[2]
            with self._opened(path) as folder:
                try:
                    os.symlink(target, name, dir_fd=folder)
                except FileExistsError:
                    if os.readlink(name, dir_fd=folder) != target:
                        raise

    def unlike(self, path: str, hint: str = "") -> UnfitStep:
        """Return the error for a path that has another content already."""
        text = f"{path.removesuffix('/')} lies in {self.root} with another content already"
        what_to_do = hint or "Have one rank write it, or give each node's file a name of its own."
        return UnfitStep(f"{text}: ranks of the step differ in it, or it was there before.", hint=what_to_do)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Yield a handle of the folder that a path lies in, which is made."""
        if not step_paths.is_below(path.removesuffix("/")):
            raise UnfitStep(f"The step holds a path that leads outside, or cannot be made: {path!r}.")
        with copying.tier_errors(self.root / path):
            handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for name in path.split("/")[:-1]:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o777, dir_fd=handle)
                    below = os.open(name, _FOLDER, dir_fd=handle)
                    os.close(handle)
                    handle = below
                yield handle
            except OSError as error:
                if error.errno not in _IN_THE_WAY | {errno.EINVAL}:
                    raise
                raise self.unlike(path) from error
            finally:
                os.close(handle)


def _holds(handle: int, pieces: Iterable[bytes | memoryview]) -> bool:
    """Return whether what was opened, and is closed then, is a file of exactly these pieces."""
    try:
        same = stat.S_ISREG(os.fstat(handle).st_mode)
        for piece in pieces:
            left = memoryview(piece)
            while same and left:
                found = os.read(handle, len(left))
                same, left = found != b"" and left[: len(found)] == found, left[len(found) :]
        return same and not os.read(handle, 1)
    finally:
        os.close(handle)
