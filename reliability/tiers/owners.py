"""Whose place on storage is this? Names of jobs are unique in one installation; storage may outlive it or be shared.

A file beside the shards holds the key of the job that came first. Any other job of the same name is refused: what lies
there would be told as its own and restored, and its retention would remove it. A second file says the same, so that
one which is damaged or was emptied is written again.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from reliability.errors import TierConflict, TierError
from reliability.tiers import sealed

OWNER_NAME = "owner.json"
SPARE_NAME = "owner-again.json"


class OwnerDamaged(TierConflict):
    """It cannot be told whose place this is, for what said so is damaged."""

    code = "owner_damaged"
    hint = (
        "Put the file back from a backup, or move the folder away: `manage.py snapshots restore --at` still reads it."
    )


class Place(Protocol):
    """Where the two files lie."""

    def said(self, name: str) -> bytes | None:
        """Return what a file holds, None when there is none. Raises TierError."""

    def say(self, name: str, content: bytes, *, anew: bool) -> None:
        """Write a file; not `anew`: unless there is one. Raises TierError."""


def claim(name: str, place: Place, job_key: str, *, ranks: int, is_empty: Callable[[], bool]) -> None:
    """Make a place that of a job, unless it is somebody's already; write again what is damaged of the two files.

    Raises OwnerDamaged when nothing tells any more whose it is, TierConflict when it is another's or holds shards of
    nobody knows whom, TierError.
    """
    found = {each: place.said(each) for each in (OWNER_NAME, SPARE_NAME)}
    if not any(found.values()) and is_empty():
        content = sealed.composed({"job_key": job_key, "ranks": ranks})
        place.say(OWNER_NAME, content, anew=found[OWNER_NAME] is not None)  # of several writers the first
        found[OWNER_NAME] = place.said(OWNER_NAME)
    good = next((raw for raw in found.values() if raw and sealed.parsed(raw) is not None), None)
    if good is None:
        raise _unknown(name, [each for each, raw in found.items() if raw is not None])
    if (sealed.parsed(good) or {}).get("job_key") != job_key:
        raise TierConflict(f"{name} is the place of another job of this name.")
    for each in (each for each, raw in found.items() if raw != good):
        with contextlib.suppress(TierError):  # whose it is, is known; the next time will do
            place.say(each, good, anew=True)


def ranks(place: Place) -> int:
    """Return how many ranks the job has whose place this is, 0 when nothing says so."""
    found = _known(place).get("ranks")
    return found if isinstance(found, int) else 0


def _known(place: Place) -> dict[str, Any]:
    for each in (OWNER_NAME, SPARE_NAME):
        if (known := sealed.parsed(place.said(each) or b"")) is not None:
            return known
    return {}


def _unknown(name: str, there: list[str]) -> TierConflict:
    if not there:
        return TierConflict(f"{name} holds snapshots of which nobody says whose they are.")
    verb = "is" if len(there) == 1 else "are"
    return OwnerDamaged(f"{name}: {' and '.join(there)} {verb} empty or damaged, so nothing says whose place this is.")
