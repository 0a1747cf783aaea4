"""A log in a file that grows, is rotated, truncated, or not there yet.

The place is the file (inode, and a digest of its first bytes, for an inode is given again to another file) and the
offset behind the last whole line. A file that was renamed is read to its end before the next one of that name; while no
agent ran it is looked for beside its old name. A file that is not the same, or got shorter, is read from its beginning.

Who truncates a log whose writer does not append leaves NULs before the next line, often gigabytes that were never
written (a hole): they are passed over, and end a line. What is no file, as a folder or a pipe, is not opened.
"""

import errno
import hashlib
import os
import time
from pathlib import Path

from reliability.agent.collectors.sources import OLD_S, Look, Place, SourceLost, odd_kind
from reliability.domain.faults.streams import Lines

HEAD_BYTES = 256
CHUNK_BYTES = 1 << 18
NULS = bytes(512)
"""So many NULs in a row are no part of a line."""
LEFT_S = 1.0
"""So long nothing is added to a file whose name is another's: then it is left for that."""


class LogFile:
    """The log at one path."""

    def __init__(self, place: Place | None, *, path: Path, strictly: bool = False) -> None:
        """`strictly`: what lies there by way of a link is not read, as where others than the agent write."""
        self._path = path
        self._strictly = strictly
        self._file: int | None = None
        self._head = b""
        self._offset = 0
        self._told = 0
        self._old = False
        self._left_at: float | None = None
        self._lines = Lines()
        try:
            self._begin(place)
        except OSError as error:
            self.close()
            raise self._lost(error) from error

    @property
    def place(self) -> Place:
        """Which file it is and how far it was told."""
        if self._file is None:
            return {"inode": 0, "head": "", "length": 0, "offset": 0}
        return {
            "inode": os.fstat(self._file).st_ino,
            "head": hashlib.sha256(self._head).hexdigest(),
            "length": len(self._head),
            "offset": self._told,
        }

    def handle(self) -> int | None:
        """A file does not say when it grew: it is looked at."""
        return None

    def look(self) -> Look:
        """Return the lines that were added."""
        look = Look()
        try:
            if self._file is None:
                self._open()
            if self._file is not None:
                self._read(look)
        except OSError as error:
            raise self._lost(error) from error
        return look

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lost(self, error: OSError) -> SourceLost:
        return SourceLost(f"{self._path} cannot be read: {error.strerror}.")

    def _begin(self, place: Place | None) -> None:
        if not self._path.parent.is_dir():
            raise SourceLost(f"{self._path.parent} is no folder.", hint="Name a log file whose folder is there.")
        if place is None:
            self._begin_at_end()
        else:
            self._resume(place)

    def _begin_at_end(self) -> None:
        self._open()
        if self._file is not None:
            self._offset = self._told = os.fstat(self._file).st_size
            self._note_head()

    def _resume(self, place: Place) -> None:
        """Go on behind a place, in the file of that name or in the one it was renamed to."""
        for path in (self._path, *self._renamed(int(place["inode"]))):
            self._open(path)
            if self._file is not None and self._is(place):
                self._offset = self._told = int(place["offset"])
                self._old = time.time() - os.fstat(self._file).st_mtime > OLD_S
                self._note_head()
                return
            self.close()

    def _renamed(self, inode: int) -> list[Path]:
        """Return the files beside this one that have an inode; empty when the folder cannot be read."""
        try:
            with os.scandir(self._path.parent) as entries:
                return [Path(entry.path) for entry in entries if entry.inode() == inode and inode]
        except OSError:
            return []

    def _is(self, place: Place) -> bool:
        """Whether the open file is the one of a place and not shorter."""
        if self._file is None:
            return False
        found, length = os.fstat(self._file), int(place["length"])
        head = os.pread(self._file, length, 0)
        same = found.st_ino == place["inode"] and hashlib.sha256(head).hexdigest() == place["head"]
        return same and found.st_size >= int(place["offset"])

    def _open(self, path: Path | None = None) -> None:
        path = path or self._path
        try:
            # Before it is opened: that alone can do something to a device.
            self._check(path, path.stat(follow_symlinks=not self._strictly).st_mode)
            links = os.O_NOFOLLOW if self._strictly else 0
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | links)
        except FileNotFoundError:
            return
        try:
            self._check(path, os.fstat(self._file).st_mode)  # it may have become another in between
            if self._strictly and Path(f"/proc/self/fd/{self._file}").readlink() != path:
                raise SourceLost(f"{path} is reached by way of a link.", hint="Have the file itself there.")
        except SourceLost:
            self.close()
            raise
        self._head, self._offset, self._told, self._lines, self._old = b"", 0, 0, Lines(), False

    @staticmethod
    def _check(path: Path, mode: int) -> None:
        if kind := odd_kind(mode):
            raise SourceLost(f"{path} is {kind}.", hint="Name the log file itself; it is tried again.")

    def _read(self, look: Look) -> None:
        """Add what was added to the open file; change to the next of its name when this one was left."""
        if self._file is not None and self._was_replaced_inside(self._file):
            self.close()
            self._open()
        if self._file is None:
            return
        chunk = os.pread(self._file, CHUNK_BYTES, self._offset)
        if chunk:
            self._left_at = None
            nuls = chunk.find(NULS)
            if nuls:
                self._add(chunk[:nuls] if nuls > 0 else chunk, look)
            else:
                self._pass_over(self._file, chunk, look)
            look.more = nuls >= 0 or len(chunk) == CHUNK_BYTES
            return
        self._old = False
        if self._was_left(self._file):
            self._put(self._lines.rest(), look)
            self.close()
            look.more = True

    def _add(self, chunk: bytes, look: Look) -> None:
        self._offset += len(chunk)
        self._note_head()
        block = self._lines.feed(chunk)
        if block:
            self._told = self._offset - (len(chunk) - chunk.rfind(b"\n") - 1)
            self._put(block, look)

    def _pass_over(self, file: int, chunk: bytes, look: Look) -> None:
        """Go behind the NULs that a chunk begins with; all before them is told, whether its line had an end or not."""
        size = os.fstat(file).st_size  # before holes are looked for: what is written from now on lies behind it
        self._put(self._lines.rest().strip(b"\0"), look)
        self._offset += len(chunk) - len(chunk.lstrip(b"\0"))
        if len(chunk) == CHUNK_BYTES and not chunk.strip(b"\0"):
            self._offset = max(self._offset, _data_from(file, self._offset, size))
        self._told = self._offset
        self._note_head()

    def _put(self, block: bytes, look: Look) -> None:
        lines = block.removesuffix(b"\n").split(b"\n") if block else []
        if b"\0" in block:
            lines = [line.strip(b"\0") for line in lines]
        (look.old_lines if self._old else look.lines).extend(lines)

    def _note_head(self) -> None:
        """Keep the first bytes, up to where was read: by them the file is known again."""
        if self._file is not None and len(self._head) < min(HEAD_BYTES, self._told or self._offset):
            self._head = os.pread(self._file, min(HEAD_BYTES, self._told or self._offset), 0)

    def _was_replaced_inside(self, file: int) -> bool:
        """Whether the same file was emptied and written anew (copied and truncated)."""
        if os.fstat(file).st_size < self._offset:
            return True
        return bool(self._head) and os.pread(file, len(self._head), 0) != self._head

    def _was_left(self, file: int) -> bool:
        """Whether the name is another file's for a while: who writes may go on with the old one for a moment."""
        try:
            same = self._path.stat(follow_symlinks=not self._strictly).st_ino == os.fstat(file).st_ino
        except FileNotFoundError:
            same = True  # renamed, and nothing in its place yet
        if same:
            self._left_at = None
            return False
        self._left_at = self._left_at or time.monotonic()
        return time.monotonic() - self._left_at >= LEFT_S


def _data_from(file: int, offset: int, size: int) -> int:
    """Return where something was written next, `size` when nothing was, `offset` where files have no holes."""
    if offset >= size:
        return offset
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset
