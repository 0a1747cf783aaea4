"""Where in memory is a snapshot copied to, so that a save costs no more than the copy?

A slot is a file of the memory tier that is mapped, reserved and touched before it is needed: memory that does not
suffice is found when it is reserved, and the first save costs what the others cost. While a slot is written its file
has a name that nobody looks for; it gets the name of its shard when it is ready, and keeps it until it is written
again. A reader that must not lose it meanwhile holds a shared lock on the file, which ends with the reader.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from . import room
from .errors import SlotMemory
from .folder import Shard
from .layout import EMPTY, PAGE, PRELUDE_BYTES, READY, STATE_AT, WRITING, Prelude

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


class Slot:
    """One mapped file. `shard` is what it holds ready, None while it holds nothing."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self.shard: Shard | None = None
        self._fd = fd
        self._map = mmap.mmap(fd, size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._state = self.view[STATE_AT : STATE_AT + 4].cast("I")

    @classmethod
    def reserved(cls, path: Path, size: int) -> "Slot":
        """Return a new slot whose memory is there and touched. Raises SlotMemory and leaves nothing behind."""
        with _alone(path.parent):
            room.check(path.parent, size)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, size)
                slot = cls(path, fd, size)
            except OSError as error:
                os.close(fd)
                path.unlink(missing_ok=True)
                raise SlotMemory(f"{size} bytes for a slot cannot be reserved in {path.parent}: {error}") from error
            slot.touch()
        return slot

    @classmethod
    def adopted(cls, path: Path) -> "Slot | None":
        """Return the slot that an earlier attempt left, what it holds included; None when it is of no use."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            size = os.fstat(fd).st_size
            if size < PAGE or size % PAGE:
                raise OSError("not a slot")
            os.posix_fallocate(fd, 0, size)  # a file with holes would fail later, when it is written
            slot = cls(path, fd, size)
        except OSError:
            os.close(fd)
            return None
        shard = Shard.of(path)
        if path.suffix == ".snap" and shard is not None and slot.is_ready():
            slot.shard = shard
        slot.touch()
        return slot

    def touch(self) -> None:
        """Map every page now; a save would pay for each of them tenfold."""
        try:
            self._map.madvise(POPULATE_WRITE)
        except OSError:  # an older kernel
            for at in range(0, self.size, PAGE):
                self.view[at] = self.view[at]

    def is_ready(self) -> bool:
        """Whether it holds a whole shard."""
        with contextlib.suppress(Exception):
            prelude = Prelude.read(self.view[:PRELUDE_BYTES], self.path)
            return prelude.state == READY and prelude.total == self.size
        return False

    def lock(self) -> bool:
        """Take the slot for writing; False while somebody reads it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(self) -> None:
        """Let readers in."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def begin(self, path: Path) -> None:
        """Take away what it holds: first the name, then the state. The caller holds the lock."""
        self.path.rename(path)
        self._forget_record()
        self.path, self.shard = path, None
        self._state[0] = WRITING

    def publish(self, prelude: Prelude, path: Path, shard: Shard) -> None:
        """Make what was copied count: the prelude, then the one store that says so, then the name."""
        self.view[:PRELUDE_BYTES] = prelude.pack()
        self._state[0] = READY
        self.path.rename(path)
        self.path, self.shard = path, shard
        self.unlock()

    def give_up(self) -> None:
        """Leave it empty: what was being copied never counts."""
        self._state[0] = EMPTY
        self.unlock()

    def remove(self) -> None:
        """Give the memory back."""
        self._forget_record()
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the mapping; the file stays."""
        self._state.release()
        self.view.release()
        self._map.close()
        os.close(self._fd)

    def _forget_record(self) -> None:
        if self.path.suffix == ".snap":
            self.path.with_suffix(".json").unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Reserve alone among the ranks of a node: what one saw free is not free any more once another has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def owner_lock(path: Path) -> int | None:
    """Return a handle that makes this process the only writer of a rank's slots; None while another one is it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    os.pwrite(fd, struct.pack("<Q", os.getpid()), 0)
    return fd
