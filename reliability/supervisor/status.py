"""Which supervisor holds this data folder, and what does it run?"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCK_NAME = "up.lock"
STATUS_NAME = "up.json"


class AlreadyRunning(Exception):
    """Another supervisor holds the folder."""


class FolderUnusable(Exception):
    """The data folder cannot be written."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the data folder. The kernel frees it however the process ends. Raises AlreadyRunning, FolderUnusable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK_NAME).open("a+")
    except OSError as error:
        raise FolderUnusable(f"{folder}: {error.strerror}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            raise AlreadyRunning(handle.read().strip() or "unknown") from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        try:
            yield
        finally:
            (folder / STATUS_NAME).unlink(missing_ok=True)


def write_status(folder: Path, *, instance: str, address: str, children: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the status file whole: a reader never sees half of it."""
    part = folder / f"{STATUS_NAME}.part"
    content = {"pid": os.getpid(), "instance": instance, "address": address, "children": children}
    part.write_text(json.dumps(content, indent=1))
    part.replace(folder / STATUS_NAME)
