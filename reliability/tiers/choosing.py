"""Which tier is meant by an address? The one place that tells a folder from an object store.

A folder is a full path or `file:///path`; an object store is `s3://bucket/prefix`, `gs://bucket/prefix` or
`az://container/prefix`. Addresses hold no credentials.
"""

import re
from pathlib import Path

from reliability.errors import InvalidInput
from reliability.ports import TierStore
from reliability.tiers import bucket
from reliability.tiers.bucket import Bucket
from reliability.tiers.directory import DATA_SUFFIX, DirectoryTier
from reliability.tiers.object_store import ObjectTier
from reliability.tiers.pacing import Pace

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HINT = "A full path, or s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."


def is_url(address: str) -> bool:
    """Return whether an address has a scheme, so that it is no path."""
    return bool(_SCHEME.match(address))


def folder_of(address: str) -> Path | None:
    """Return the folder that an address means, None for an object store. Raises InvalidInput for neither."""
    if address.startswith("file://"):
        address = address.removeprefix("file://")
    if is_url(address):
        bucket.split(address)
        return None
    path = Path(address)
    if not path.is_absolute() or ".." in path.parts:
        raise InvalidInput("storage_dir", f"{address} is not absolute", hint=_HINT)
    return path


def job_tier(address: str, job: str, *, owner: str = "", bytes_per_s: float = 0.0) -> TierStore:
    """Return where the shards of a job lie below a storage address. Raises InvalidInput for what is none."""
    pace = Pace(bytes_per_s)
    folder = folder_of(address)
    if folder is not None:
        return DirectoryTier(folder / job, owner=owner, pace=pace)
    return ObjectTier(Bucket(f"{address.rstrip('/')}/{job}"), owner=owner, pace=pace)


def split_place(place: str, job: str, key: str) -> str:
    """Return the storage address below which a shard of a job lies at `place`.

    Raises InvalidInput when the place does not end as the shard of this job with this key does.
    """
    end = f"/{job}/{key}{DATA_SUFFIX}"
    if not place.endswith(end) or len(place) == len(end):
        raise InvalidInput("path", f"{place} is not where storage keeps this shard", hint=f"It must end with {end}.")
    return place.removesuffix(end)
