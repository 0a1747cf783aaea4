"""How is a file opened in a folder that a container writes to, without being led astray?

A program may put anything there: a link to a file of the host, a pipe that never ends, a file of any size. So a
folder is opened itself and never through a link, names are looked up in the opened folder, only regular files are
read, opening never waits, and what is written goes to a new file that takes its name when it is complete.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = {errno.ELOOP, errno.ENXIO}
"""What opening a link, and a socket, ends with; also a disk that is gone."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotAFileError(OSError):
    """What has the name is a folder, a link, a pipe: nothing that a file could be read from."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


@contextlib.contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Yield a handle of a folder that is no link. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def regular(path: Path) -> int:
    """Return a handle to read a regular file; neither it nor its folder may be a link. Raises OSError."""
    with opened_folder(path.parent) as folder:
        try:
            handle = os.open(path.name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in _NO_FILE and not stat.S_ISREG(os.lstat(path.name, dir_fd=folder).st_mode):
                raise NotAFileError(path) from error
            raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise NotAFileError(path)


def small(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file of at most `limit_bytes`. Raises OSError."""
    with os.fdopen(regular(path), "rb", buffering=0) as file:
        content = bytearray()
        while piece := file.read(limit_bytes + 1 - len(content)):
            content += piece
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes", str(path))
    return bytes(content)


def created(name: str, *, folder: int, mode: int = 0o644) -> int:
    """Return a handle to write a new file in an opened folder; what had the name is removed first. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, _CREATE, mode, dir_fd=folder)


def replace(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a small file whole, not synced; several writers do not disturb each other. Raises OSError."""
    part = f"{path.name}.{secrets.token_hex(6)}.part"
    with opened_folder(path.parent) as folder:
        try:
            with os.fdopen(created(part, folder=folder, mode=mode), "wb") as file:
                file.write(content)
            os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


def dated(name: str, *, folder: int) -> float:
    """Return the time that a file made now gets, by the clock of the file system. Raises OSError."""
    handle = created(name, folder=folder)
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        os.unlink(name, dir_fd=folder)


def create_once(path: Path, content: bytes) -> bool:
    """Make a small file, durable and whole, unless there is one; return whether it was made. Raises OSError."""
    part = f"{path.name}.{secrets.token_hex(6)}.part"
    with opened_folder(path.parent) as folder:
        try:
            with os.fdopen(created(part, folder=folder), "wb", buffering=0) as file:
                file.write(content)
                os.fsync(file.fileno())
            os.link(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
    return True


def remove(path: Path) -> None:
    """Remove a file if it is there; its folder may be no link. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), opened_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def names(path: Path) -> list[str]:
    """Return the names in a folder that is no link. Raises OSError."""
    with opened_folder(path) as folder, os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def make_private(path: Path) -> None:
    """Have a folder that its owner alone may enter, durable in the folder above. Raises OSError."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        with opened_folder(path) as folder:
            if stat.S_IMODE(os.fstat(folder).st_mode) & 0o077:
                os.fchmod(folder, 0o700)
    else:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
