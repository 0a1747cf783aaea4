"""How do bytes that lie in memory get onto a disk as fast as the disk takes them?

Straight from the mapped pages, past the page cache where the file system allows it (O_DIRECT), in chunks of 8 MiB,
the digest of the next chunk being computed while one is written. The rest is as for every copy: a part file, its
digest compared, forced to the disk, renamed, and the folder forced to the disk too.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reliability.errors import CopyMissing, DigestMismatch, TierUnreachable
from reliability.tiers import copying, digests
from reliability.tiers.digests import CHUNK_BYTES
from reliability.tiers.slotmaps import SlotMaps

PAGE = 4096


@contextlib.contextmanager
def held(path: Path, maps: SlotMaps) -> Iterator[memoryview]:
    """Yield the content of a slot in memory where it lies; its writer leaves it alone until the block ends.

    Raises CopyMissing when it is being written or is no longer there under this name.
    """
    handle = copying.handle(path)
    try:
        _lock(handle, path)
        if os.fstat(handle).st_size == 0:
            raise CopyMissing(f"{path} is empty.")
        with maps.content(handle) as view:
            yield view
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough: the mapping keeps the opened file
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    """A name is given to a slot when it is ready and taken away before it is written: it must still be this file's."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        same = os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        same = False
    if not same:
        raise CopyMissing(f"{path} was written over meanwhile.")


def write(
    view: memoryview, target: Path, record: Callable[[], Mapping[str, Any]], *, owner: str = "", hash_again: bool
) -> int:
    """Write a slot's content to `target`, durable, and return its size.

    `record` returns its commit record with the digest of each chunk; without `hash_again` it is asked only once all is
    written, so that the slot may be hashed meanwhile. Raises DigestMismatch when a chunk is not what the record names,
    what `record` raises, TierFull, TierUnreachable; then nothing is left of it.
    """
    part = copying.part_path(target, owner)
    with copying.writing(target, part.name, sync_folder=False) as handle, copying.tier_errors(target):
        direct = _without_cache(handle, len(view))
        if hash_again:
            with ThreadPoolExecutor(1, thread_name_prefix="digest") as pool:
                _write_chunks(handle, view, list(record()["chunks"]), pool, target)
        else:
            for start in range(0, len(view), CHUNK_BYTES):
                _write_all(handle, view[start : start + CHUNK_BYTES], target)
        if direct:
            _with_cache(handle)
        known = record()
        if digests.root(list(known["chunks"]), len(view)) != known["digest"]:
            raise DigestMismatch(f"The chunks of {target.name} do not make the digest {known['digest']}.")
    return len(view)


def _write_chunks(handle: int, view: memoryview, chunks: Sequence[str], pool: ThreadPoolExecutor, target: Path) -> None:
    pieces = [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]
    found = pool.submit(digests.chunk, pieces[0])
    for number, piece in enumerate(pieces):
        ahead = pool.submit(digests.chunk, pieces[number + 1]) if number + 1 < len(pieces) else found
        _write_all(handle, piece, target)
        if number >= len(chunks) or found.result() != chunks[number]:
            raise DigestMismatch(f"Chunk {number} of {target.name} is not what was committed in memory.")
        found = ahead


def _write_all(handle: int, piece: memoryview, target: Path) -> None:
    while piece:
        try:
            count = os.write(handle, piece)
        except OSError as error:
            if error.errno != errno.EINVAL or not _with_cache(handle):
                raise
            continue  # this file system takes O_DIRECT and then refuses what is written
        if count <= 0:
            raise TierUnreachable(f"{target} takes no more bytes.")
        if count % PAGE and count < len(piece):
            _with_cache(handle)
        piece = piece[count:]


def _without_cache(handle: int, size: int) -> bool:
    """Reserve the room, so that a full disk is found at once, and write past the page cache if that can be."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
    if size % PAGE:
        return False
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True


def _with_cache(handle: int) -> bool:
    """Return to the page cache; False when the file is written through it already."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    if not flags & os.O_DIRECT:
        return False
    fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return True
