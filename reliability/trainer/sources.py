"""Where does a restore read from: memory that is mapped, or a disk?

Either answers with the address at which a stretch of the shard lies for as long as the same thread asks for no other.
"""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

from .errors import CorruptSnapshot
from .sums import CHUNK_BYTES

TMPFS = 0x01021994
POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14
PAGE = 4096
PROBES = 8


class Slotted:
    """A shard in a slot that this process has mapped already."""

    in_memory = True

    def __init__(self, address: int) -> None:
        self._address = address

    def at(self, start: int, _length: int) -> int:
        """Return where the bytes from `start` on lie."""
        return self._address + start

    def close(self) -> None:
        """The mapping is the slot's."""


class Mapped(Slotted):
    """A shard in memory, mapped for the purpose."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        super().__init__(ctypes.addressof(ctypes.c_char.from_buffer(self._map)))
        try:
            self._map.madvise(POPULATE_READ)
        except OSError:
            return  # an older kernel: every page is mapped when it is read

    def close(self) -> None:
        """Let go of the mapping."""
        self._map.close()


class OnDisk:
    """A shard on a disk, read in chunks into a buffer of each thread; past the page cache unless it is there."""

    in_memory = False

    def __init__(self, fd: int, size: int, path: Path) -> None:
        self._path = path
        self._own = threading.local()
        self._direct = _direct(fd, size)
        self._fd = fd if self._direct is None else self._direct
        if self._direct is None:
            os.posix_fadvise(fd, 0, size, os.POSIX_FADV_SEQUENTIAL)

    def at(self, start: int, length: int) -> int:
        """Read a stretch of at most a chunk and return where it lies now."""
        buffer, address = self._buffer()
        done = 0
        while done < length:
            count = os.preadv(self._fd, [buffer[done:length]], start + done)
            if not count:
                raise CorruptSnapshot(f"{self._path} became shorter while it was read")
            done += count
        return address

    def close(self) -> None:
        """Close what was opened here."""
        if self._direct is not None:
            os.close(self._direct)

    def _buffer(self) -> tuple[memoryview, int]:
        if not hasattr(self._own, "buffer"):
            self._own.map = mmap.mmap(-1, CHUNK_BYTES)
            self._own.buffer = memoryview(self._own.map)
            self._own.address = ctypes.addressof(ctypes.c_char.from_buffer(self._own.map))
        return self._own.buffer, self._own.address


def _direct(fd: int, size: int) -> int | None:
    """Return a handle that reads past the page cache; None when the file is in it, or the file system has no such."""
    if size % PAGE or _cached(fd, size):
        return None
    try:
        handle = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, PAGE) as probe:
            os.preadv(handle, [probe], 0)
    except OSError:
        os.close(handle)
        return None
    return handle


def _cached(fd: int, size: int) -> bool:
    """Whether most of a file is in the page cache, by some probes that wait for nothing."""
    found = 0
    for number in range(PROBES):
        try:
            found += bool(os.preadv(fd, [bytearray(PAGE)], size // PROBES * number & ~(PAGE - 1), os.RWF_NOWAIT))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return True  # it cannot be told: reading through the cache is always right
    return found > PROBES // 2


def in_memory(fd: int) -> bool:
    """Whether a file lies on a tmpfs: only then is it safe and fast to read it through a mapping."""
    found = (ctypes.c_ulong * 64)()
    fstatfs: Callable[..., int] = ctypes.CDLL(None).fstatfs
    return fstatfs(fd, ctypes.byref(found)) == 0 and found[0] & 0xFFFFFFFF == TMPFS
