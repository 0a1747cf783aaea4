"""Which step of a job is safe, as the server last said? The movers remove nothing at or above it, or without it.

Kept beside the job's record, but not synced: after a power loss nothing is removed until the server speaks again.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from reliability.tiers import opening

SUFFIX = ".floors"
_LIMIT_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Floors:
    """The newest step of the current line that is complete over all ranks, for a job whose newest attempt is `epoch`.

    `storage` counts copies on storage alone, `ssd` those on any node's SSD or on storage. None: there is no such step.
    """

    epoch: int = 0
    ssd: int | None = None
    storage: int | None = None


def save(folder: Path, job: str, floors: Floors) -> None:
    """Keep what the server said of a job. Raises OSError."""
    opening.replace(folder / f"{job}{SUFFIX}", json.dumps(asdict(floors)).encode(), mode=0o600)


def load(folder: Path, job: str) -> Floors:
    """Return what the server last said of a job; without floors when nothing can be read."""
    try:
        return Floors(**json.loads(opening.small(folder / f"{job}{SUFFIX}", _LIMIT_BYTES)))
    except (OSError, ValueError, TypeError):
        return Floors()
