"""How does a file get from one place to another so that a reader never meets half of it?

Bytes go to a part file beside the target, are hashed while they pass, forced to the disk, compared with the expected
digest, and only then renamed. The folder is forced to the disk too: a rename that is not is lost with the power.
"""

import contextlib
import errno
import io
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reliability.errors import CopyMissing, DigestMismatch, TierError, TierFull, TierUnreachable
from reliability.tiers import digests, opening
from reliability.tiers.digests import Hasher
from reliability.tiers.pacing import Pace

CHUNK_BYTES = 4 * 2**20
PART_SUFFIX = ".part"
_FULL = {errno.ENOSPC, errno.EDQUOT}


def handle(path: Path) -> int:
    """Return a handle to read a copy; what is no file is no copy. Raises CopyMissing, TierUnreachable."""
    with tier_errors(path):
        try:
            return opening.regular(path)
        except opening.NotAFileError as error:
            raise CopyMissing(f"There is no file {path}: {error.strerror}.") from error


def opened(path: Path) -> io.FileIO:
    """Return a copy opened to be read. Raises CopyMissing, TierUnreachable."""
    return io.FileIO(handle(path))


def digest_of(path: Path, like: str = digests.BLAKE2B) -> tuple[str, int]:
    """Return digest, of the kind of `like`, and size in bytes of a file. Raises CopyMissing, TierUnreachable."""
    hasher = digests.hasher_like(like)
    with tier_errors(path), opened(path) as file:
        size = sum(_hashed(file.fileno(), hasher, -1))
    return hasher.text(), size


def verify(path: Path, *, digest: str) -> int:
    """Return the size of a file whose content has this digest. Raises CopyMissing, DigestMismatch."""
    found, size = digest_of(path, digest)
    compare(path, found, digest)
    return size


def pieces_verified(path: Path, *, digest: str) -> Iterator[bytes]:
    """Yield the content of a file in order; raises DigestMismatch at the end when it is not what was committed."""
    hasher = digests.hasher_like(digest)
    with opened(path) as reader:
        while True:
            with tier_errors(path):
                piece = reader.read(CHUNK_BYTES)
            if not piece:
                break
            hasher.update(piece)
            yield piece
    compare(path, hasher.text(), digest)


def gathered(
    pieces: Iterable[bytes | memoryview],
    target: Path,
    *,
    digest: str,
    owner: str = "",
    told: Callable[[int], object] = int,
) -> int:
    """Write a file from pieces that come in order, durable and verified; return its size in bytes.

    `told` is called with the size of each piece. Raises DigestMismatch, TierFull, TierUnreachable.
    """
    hasher, size = digests.hasher_like(digest), 0
    with writing(target, part_path(target, owner).name) as writer:
        for piece in pieces:
            hasher.update(piece)
            size += len(piece)
            with tier_errors(target):
                left = memoryview(piece)
                while left:
                    left = left[os.write(writer, left) :]
            told(len(piece))
        compare(target, hasher.text(), digest)
    return size


def copy_verified(source: Path, target: Path, *, digest: str, owner: str = "", pace: Pace | None = None) -> int:
    """Copy a file, durable and verified, and return its size in bytes.

    The part file is removed when anything fails. `owner` keeps part files of several writers apart; `pace` limits how
    fast bytes are written.
    Raises CopyMissing, DigestMismatch, TierFull, TierUnreachable.
    """
    hasher = digests.hasher_like(digest)
    with opened(source) as reader, writing(target, part_path(target, owner).name) as writer:
        with tier_errors(target):
            size = sum(_paced(_hashed(reader.fileno(), hasher, writer), pace))
        compare(source, hasher.text(), digest)
    return size


def write_json(path: Path, content: Mapping[str, Any], *, owner: str = "") -> None:
    """Write a JSON file so that it is there whole and durable, or not at all. Raises TierFull, TierUnreachable.

    Several threads may write the same file: each has a part file of its own, and the last one stays.
    """
    text = memoryview(json_bytes(content))
    part = part_path(path.with_name(f"{path.name}.{secrets.token_hex(6)}"), owner)
    with writing(path, part.name) as writer, tier_errors(path):
        while text:
            text = text[os.write(writer, text) :]


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as small JSON files hold it."""
    return json.dumps(content, separators=(",", ":")).encode()


@contextlib.contextmanager
def writing(target: Path, part: str, *, sync_folder: bool = True) -> Iterator[int]:
    """Yield a handle for the content of `target`, which is there, durable, once the block has ended well.

    Its bytes are gathered in the file `part` beside it. Without `sync_folder` its name is durable only once the next
    file of the folder is: enough for a shard, which does not count before its record. Raises TierFull, TierUnreachable.
    """
    with contextlib.ExitStack() as stack:
        with tier_errors(target):
            folder = stack.enter_context(opening.opened_folder(target.parent))
            writer = opening.created(part, folder=folder)
        try:
            try:
                yield writer
                with tier_errors(target):
                    os.fsync(writer)
            finally:
                os.close(writer)
            with tier_errors(target):
                os.rename(part, target.name, src_dir_fd=folder, dst_dir_fd=folder)
                if sync_folder:
                    os.fsync(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


def part_path(target: Path, owner: str = "") -> Path:
    """Return where the bytes of a target are gathered before they are complete."""
    return target.with_name(f"{target.name}{'.' + owner if owner else ''}{PART_SUFFIX}")


@contextlib.contextmanager
def tier_errors(path: Path) -> Iterator[None]:
    """Translate errors of the operating system into errors of a tier that name the path."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path) from error


def _translated(error: OSError, path: Path) -> TierError:
    why = error.strerror or str(error)
    if error.errno in _FULL:
        return TierFull(f"No room for {path}: {why}.")
    if error.errno == errno.ENOENT and path.parent.is_dir():
        return CopyMissing(f"There is no file {path}.")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return TierUnreachable(f"{path} may not be used: {why}.", hint=f"Let the agent's user write to {path.parent}.")
    return TierUnreachable(f"{path} cannot be reached: {why}.", hint=f"Check that {path.parent} exists and is mounted.")


def _paced(counts: Iterator[int], pace: Pace | None) -> Iterator[int]:
    for count in counts:
        if pace is not None:
            pace.take(count)
        yield count


def _hashed(source: int, hasher: Hasher, target: int) -> Iterator[int]:
    """Hash all of a file descriptor, writing it to `target` unless that is -1; yields the bytes of each chunk."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while count := os.readv(source, [buffer]):
        chunk = buffer[:count]
        hasher.update(chunk)
        while target >= 0 and chunk:
            chunk = chunk[os.write(target, chunk) :]
        yield count


def compare(place: object, found: str, expected: str) -> None:
    """Raise DigestMismatch naming the place when a digest is not the expected one, InvalidInput when that is none."""
    digests.hasher_like(expected)
    if found != expected:
        raise DigestMismatch(f"{place} holds {found}, committed was {expected}.")
