"""What do the small files say in which the kernel shows itself, as under /proc and /sys?

Whatever stands there, reading it raises nothing: a file that is missing, forbidden, a loop of links, or that holds
something else than expected, says None, and None never counts as a fault.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 262_144
MOST_ENTRIES = 4096
MOST_NUMBER = 2**63 - 1
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_RATIO = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Tree:
    """Files below one folder, by parts of their path; another root than the kernel's is as good."""

    root: Path

    def below(self, *parts: str) -> "Tree":
        """Return the tree of a folder in this one."""
        return Tree(self.root.joinpath(*parts))

    def text(self, *parts: str) -> str | None:
        """Return what a regular file holds, without white space around it, None when it cannot be read."""
        raw = self._raw(*parts)
        return None if raw is None else clean(raw.decode("utf-8", "replace")).strip()

    def number(self, *parts: str) -> int | None:
        """Return the whole number that a file holds, decimal or 0x, None when it is none or beyond 64 bits."""
        return number(self.text(*parts))

    def names(self, *parts: str) -> list[str]:
        """Return the names in a folder in order, at most MOST_ENTRIES of them; none when it cannot be read."""
        found: list[str] = []
        try:
            with os.scandir(self.root.joinpath(*parts)) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) >= MOST_ENTRIES:
                        break
        except (OSError, ValueError):
            return []
        return sorted(found)

    def there(self, *parts: str) -> bool:
        """Return whether there is such a file or folder."""
        try:
            return self.root.joinpath(*parts).exists()
        except (OSError, ValueError):
            return False

    def absent(self, *parts: str) -> bool:
        """Return whether it is certain that there is no such file or folder: one that may not be looked at is not."""
        try:
            self.root.joinpath(*parts).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError):
            return False
        return False

    def hidden(self, *parts: str) -> bool:
        """Return whether a folder is there, as far as can be told, and may not be looked into."""
        try:
            os.scandir(self.root.joinpath(*parts)).close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError):
            return True
        return False

    def device(self, *parts: str) -> str:
        """Return the name of the device that a link stands for, as 0000:8f:00.0; '' when there is none."""
        try:
            return clean(self.root.joinpath(*parts).readlink().name)
        except (OSError, ValueError):
            return ""

    def _raw(self, *parts: str) -> bytes | None:
        """A pipe that stands there instead of a file does not keep us waiting."""
        try:
            handle = os.open(self.root.joinpath(*parts), _READ)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return _all(handle)
        except OSError:
            return None
        finally:
            os.close(handle)


def _all(handle: int) -> bytes:
    data = b""
    while len(data) < MOST_BYTES:
        piece = os.read(handle, MOST_BYTES - len(data))
        if not piece:
            break
        data += piece
    return data


def clean(text: str) -> str:
    """Return text that can be sent: no NUL, no halves of characters."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def number(text: str | None) -> int | None:
    """Return the whole number that a text is, None when it is none or does not fit into 64 bits."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        value = int(text)
    elif _HEX.fullmatch(text):
        value = int(text, 16)
    else:
        return None
    return value if abs(value) <= MOST_NUMBER else None


def ratio(text: str | None) -> float | None:
    """Return the number from 0 on, whole or with a point, that a text is, None when it is none."""
    return float(text) if text is not None and _RATIO.fullmatch(text) else None
