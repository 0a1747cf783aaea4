"""How much of what abandoned attempts wrote is kept on a node? The newest, up to a limit; the oldest goes first.

Each name in `aside` ends with a number that counts what was moved there: the order does not hang on any clock.
"""

import logging
import os
import shutil
from pathlib import Path

from reliability.agent import program_folder
from reliability.tiers import copying

_BLOCK_BYTES = 512
_LONGEST_NAME = 230

log = logging.getLogger("stepkeeper.agent")


def take(aside: Path, path: Path, mark: str) -> Path:
    """Move a file or folder aside; return where it is now. Raises TierFull, TierUnreachable."""
    number = max(map(_number, program_folder.names(aside)), default=0) + 1
    named = os.fsdecode(os.fsencode(f"{mark}-{path.name}")[:_LONGEST_NAME])
    target = aside / f"{named}.{number}"
    with copying.tier_errors(target):
        path.rename(target)
    return target


def trim(aside: Path, limit_bytes: int) -> list[str]:
    """Remove what was moved aside first until the rest is at most so much; return the names that went.

    What cannot be removed is left and logged: no start fails by it. Raises TierError when nothing can be listed.
    """
    gone, left = [], limit_bytes
    for name in sorted(program_folder.names(aside), key=_number, reverse=True):
        left -= _size_bytes(aside / name)
        if left < 0:
            _remove(aside / name)
            gone.append(name)
    return gone


def _remove(path: Path) -> None:
    try:
        path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        log.warning("moved aside by an abandoned attempt, removed by the limit of the job: path=%s", path)
    except OSError as error:
        log.warning("moved aside and cannot be removed: path=%s why=%s", path, error)


def _number(name: str) -> int:
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isdecimal() and len(digits) <= 18 else 0


def _size_bytes(path: Path) -> int:
    """Return what a file or folder takes of the disk; what cannot be read counts as nothing."""
    found = [path, *(Path(at) / name for at, folders, files in os.walk(path) for name in (*folders, *files))]
    return sum(map(_taken, found))


def _taken(path: Path) -> int:
    try:
        return path.lstat().st_blocks * _BLOCK_BYTES
    except OSError:
        return 0
