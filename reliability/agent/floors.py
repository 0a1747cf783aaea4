"""Which step of a job is safe, and which copies shall go, as the server last said?

The movers remove nothing at or above a floor, or without it. A server that decides by rules names every copy.

Kept beside the job's record, but not synced: after a power loss nothing is removed until the server speaks again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reliability.tiers import opening

SUFFIX = ".floors"
_LIMIT_BYTES = 2**20
MOST_LISTED = 1000
FRESH_S = 60.0
"""So long counts what a server named to be removed: it may have taken it back since."""
RENEW_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Floors:
    """The newest step of the current line that is complete over all ranks, for a job whose newest attempt is `epoch`.

    `storage` counts copies on storage alone, `ssd` those on any node's SSD or on storage. None: there is no such step.
    `may_go`: tier -> [epoch, step, rank] of the copies that this node shall remove; None of a server that names none
    and leaves it to the nodes. `said_at`: when, by the clock that nobody sets.
    """

    epoch: int = 0
    ssd: int | None = None
    storage: int | None = None
    may_go: Mapping[str, Sequence[Sequence[int]]] | None = None
    said_at: float = 0.0

    def stands(self, said: "Floors") -> bool:
        """Return whether this need not be kept anew when the server says `said`."""
        if replace(said, said_at=self.said_at) != self:
            return False
        return not any((self.may_go or {}).values()) or said.said_at - self.said_at < RENEW_S


def listed(value: object) -> dict[str, list[list[int]]] | None:
    """Return what an answer names to be removed of a job, without what makes no sense; None when it names nothing."""
    if not isinstance(value, Mapping):
        return None
    return {str(tier): _places(entries) for tier, entries in value.items()}


def _places(entries: object) -> list[list[int]]:
    if not isinstance(entries, list):
        return []
    return [list(entry) for entry in entries[:MOST_LISTED] if _is_place(entry)]


def _is_place(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 3 and all(type(number) is int and number >= 0 for number in entry)


def save(folder: Path, job: str, floors: Floors) -> None:
    """Keep what the server said of a job. Raises OSError."""
    opening.replace(folder / f"{job}{SUFFIX}", json.dumps(asdict(floors)).encode(), mode=0o600)


def load(folder: Path, job: str) -> Floors:
    """Return what the server last said of a job; without floors when nothing can be read."""
    try:
        return Floors(**json.loads(opening.small(folder / f"{job}{SUFFIX}", _LIMIT_BYTES)))
    except (OSError, ValueError, TypeError):
        return Floors()
