"""Slots in memory as a reader sees them: mapped once, for as long as their files are there.

Mapping a gigabyte anew for every save would take as long as hashing it. A slot is told by its file, not by its name,
which changes with every save; a file that is gone is let go of, so that its memory is free again.
"""

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14

Identity = tuple[int, int, int]


@dataclass
class _Mapped:
    handle: int
    map: mmap.mmap
    users: int = 0

    def close(self) -> None:
        self.map.close()
        os.close(self.handle)


class SlotMaps:
    """The mappings of one process. Several threads may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mapped: dict[Identity, _Mapped] = {}

    @contextlib.contextmanager
    def content(self, handle: int) -> Iterator[memoryview]:
        """Yield the content of an opened slot where it lies. Raises OSError, ValueError for an empty file."""
        found = os.fstat(handle)
        identity = (found.st_dev, found.st_ino, found.st_size)
        with self._lock:
            mapped = self._mapped.get(identity) or self._map(identity, handle)
            mapped.users += 1
        view = memoryview(mapped.map)
        try:
            yield view
        finally:
            view.release()
            with self._lock:
                mapped.users -= 1

    def prune(self) -> None:
        """Let go of the slots whose files are gone."""
        with self._lock:
            for identity, mapped in list(self._mapped.items()):
                if not mapped.users and os.fstat(mapped.handle).st_nlink == 0:
                    del self._mapped[identity]
                    mapped.close()

    def close(self) -> None:
        """Let go of all that nobody uses."""
        with self._lock:
            for identity, mapped in list(self._mapped.items()):
                if not mapped.users:
                    del self._mapped[identity]
                    mapped.close()

    def _map(self, identity: Identity, handle: int) -> _Mapped:
        size = identity[2]
        mapped = _Mapped(os.dup(handle), mmap.mmap(handle, size, prot=mmap.PROT_READ))
        with contextlib.suppress(OSError):  # an older kernel: every page is mapped when it is read
            mapped.map.madvise(POPULATE_READ)
        self._mapped[identity] = mapped
        return mapped
