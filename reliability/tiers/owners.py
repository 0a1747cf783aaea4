"""Whose place on storage is this? Names of jobs are unique in one installation; storage may outlive it or be shared.

A file beside the shards holds the key of the job that came first. Any other job of the same name is refused: what lies
there would be told as its own and restored, and its retention would remove it.
"""

from reliability.errors import TierConflict
from reliability.tiers import sealed

OWNER_NAME = "owner.json"


def composed(job_key: str, ranks: int) -> bytes:
    """Return what the file holds for a job."""
    return sealed.composed({"job_key": job_key, "ranks": ranks})


def ranks(said: bytes) -> int:
    """Return how many ranks the job has that the file is of, 0 when it does not say."""
    found = (sealed.parsed(said) or {}).get("ranks")
    return found if isinstance(found, int) else 0


def check(place: str, said: bytes, job_key: str) -> None:
    """Raise TierConflict unless the file says that the place is this job's."""
    if not said:
        raise TierConflict(f"{place} holds snapshots of which nobody says whose they are.")
    found = sealed.parsed(said)
    if found is None:
        raise TierConflict(f"{place}/{OWNER_NAME} does not say whose place this is.")
    if found.get("job_key") != job_key:
        raise TierConflict(f"{place} is the place of another job of this name.")
