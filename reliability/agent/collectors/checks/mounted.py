"""What is mounted on this machine, as the kernel lists it?"""

import re
from dataclasses import dataclass

from reliability.agent.collectors.checks.tree import Tree

_STOPPED = frozenset({"ro", "emergency_ro", "shutdown"})
"""Options of a mount that takes no writes: newer kernels leave "rw" there and add a word after an error."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: of what, where, of which type, and whether it can be written to."""

    source: str
    folder: str
    kind: str
    writable: bool


def mounts(proc: Tree) -> list[Mount] | None:
    """Return the mounts of this process in order, None when they cannot be read. Lines that are none are left out."""
    text = proc.text("self", "mounts")
    if text is None:
        return None
    found = (line.split(" ") for line in text.split("\n"))
    return [
        Mount(_plain(parts[0]), _plain(parts[1]), parts[2], not _STOPPED & set(parts[3].split(",")))
        for parts in found
        if len(parts) >= 6 and {"rw", "ro"} & set(parts[3].split(","))
    ]


def _plain(escaped: str) -> str:
    r"""Return a path as it is: the kernel writes white space and backslashes as \040 and so on, byte by byte."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8) & 0xFF), escaped)
