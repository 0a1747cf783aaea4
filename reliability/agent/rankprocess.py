"""Can the process of a rank go on by itself, or is it stopped, frozen, or stuck in the kernel?

Asked only of ranks that stand still. A rank holds a lock on a file of the job's folder for as long as it lives, which
leads to its process without asking the engine, which may hang itself.
"""

import re
from pathlib import Path

from reliability.agent import freezer

_PROC = Path("/proc")
_LOCK = re.compile(r"^\d+: FLOCK +\w+ +\w+ (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", re.MULTILINE)
_LETTERS = {"T": "stopped", "t": "stopped", "D": "uninterruptible"}


def state_of(alive_file: Path) -> str:
    """Return 'stopped', 'frozen' or 'uninterruptible', '' for any other state and where nothing can be seen.

    `alive_file` is the one that the processes of a rank hold locked. One that goes on is enough to be none of these.
    """
    states = [_state(pid) for pid in _holders(alive_file)]
    return states[0] if states and "" not in states else ""


def _holders(path: Path) -> list[int]:
    """Return who locked a file, in our own numbers of processes; what cannot be seen from here is left out."""
    try:
        inode = path.stat().st_ino
        locks = (_PROC / "locks").read_text()
    except OSError:
        return []
    return sorted({int(pid) for pid, found in _LOCK.findall(locks) if int(found) == inode and int(pid) > 0})


def _state(pid: int) -> str:
    try:
        letter = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    if letter in {"T", "t"}:
        return _LETTERS[letter]
    return "frozen" if freezer.frozen(pid) else _LETTERS.get(letter, "")
