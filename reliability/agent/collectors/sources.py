"""Where does a log come from, line by line, and up to where was it read?

A source is read without waiting. Its place can be kept and given to the next one: it then goes on behind it, and tells
of what is gone in between. A source without a place begins at the present end of its log: what was written before the
agent's first start is no fault of now.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from reliability.errors import ReliabilityError

MOST_LINES = 2000
"""Lines of one look, so that counts are told and beats given between two of them."""
OLD_S = 3600.0
"""What was written so long before it is read, while no agent ran, is told as old and no fault of now."""

Place = Mapping[str, Any]


class SourceLost(ReliabilityError):
    """A log cannot be read (any more)."""

    code = "source_lost"
    transient = True
    hint = "Look at the path and at the rights of the agent's user; it is tried again."


@dataclass(kw_only=True)
class Look:
    """What one look found: whole lines without line ends, in order; those that are old came before all others.

    `lost`: lines that were overwritten unread. `more`: it ended at MOST_LINES.
    """

    lines: list[bytes] = field(default_factory=list)
    old_lines: list[bytes] = field(default_factory=list)
    lost: int = 0
    more: bool = False


class Source(Protocol):
    """A log."""

    @property
    def place(self) -> Place:
        """Return up to where it was read, all that `look` returned included."""

    def handle(self) -> int | None:
        """Return what becomes readable when there is more, None when one has to look now and then."""

    def look(self) -> Look:
        """Return what is there now, at most MOST_LINES. Raises SourceLost."""

    def close(self) -> None:
        """Let it go."""


_ODD_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def odd_kind(mode: int) -> str:
    """Return what a path is by its mode, as "a folder"; "" for a file, which alone has bytes at places."""
    return _ODD_KINDS.get(stat.S_IFMT(mode), "")
