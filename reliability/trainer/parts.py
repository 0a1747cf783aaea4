"""What of a rank's state does another rank have too?

    sharded      the rank's own piece; nobody else has it (the default, and every tensor that is spread over ranks)
    replicated   the same bits on all ranks of a group, as model and optimizer are under data parallelism
    local        the rank's own and small: random generators, the position in the data

A shard holds them in the order local, sharded, replicated, the last from a page of its own on. What comes before that
page is small when nothing is sharded: it travels with the commit report, and together with the replicated part of any
other rank it is the very shard of this one again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ConfigurationError

SHARDED, REPLICATED, LOCAL = "sharded", "replicated", "local"
PARTS = (SHARDED, REPLICATED, LOCAL)
_LETTERS = {LOCAL: "l", SHARDED: "s", REPLICATED: "r"}
_ORDER = "lsr"


@dataclass(frozen=True)
class Named:
    """What a program says of its states: the part of each by name, and of which group the replicated ones are."""

    by_name: Mapping[str, str]
    group: str = ""

    @property
    def any(self) -> bool:
        """Whether anything is not simply the rank's own."""
        return any(part != SHARDED for part in self.by_name.values())


NOTHING = Named({})


def checked(part: str, state: str) -> str:
    """Return a part by its name. Raises ConfigurationError for another word."""
    if part not in PARTS:
        raise ConfigurationError(f"the state {state!r} cannot be {part!r}", hint=f"One of: {', '.join(PARTS)}.")
    return part


def letters(parts: Sequence[str]) -> str:
    """Return the parts of buffers as a header holds them: one letter each."""
    return "".join(_LETTERS[part] for part in parts)


def order(told: str) -> list[int]:
    """Return the numbers of buffers in the order in which they lie in the shard. Raises ValueError for other letters.

    `told`: one letter for each buffer, as `letters` gives it.
    """
    return sorted(range(len(told)), key=lambda number: _ORDER.index(told[number]))


def is_spread(value: Any) -> bool:
    """Return whether a tensor's parts lie on several ranks, so that each has but its own."""
    if type(value).__name__ != "DTensor":
        return False
    return not all(placement.is_replicate() for placement in value.placements)
