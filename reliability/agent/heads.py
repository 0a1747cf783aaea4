"""What of a shard is this rank's alone, so that it must outlive the node? It travels with the commit report.

Where a shard holds replicated and local parts alone, everything before its replicated part, the head, is small. It is
put beside the shard when that is sealed, goes to the server with the report of the commit, and lies here no longer.
Together with the replicated part of any other rank it is the very shard again (docs/adr/0016-parts.md).
"""

import base64
import binascii
import contextlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.errors import CopyMissing
from reliability.tiers import copying, opening
from reliability.trainer.layout import Layout

SUFFIX = ".head"
MOST_BYTES = 64 * 2**10
"""Most of a head, compressed, that travels with a report."""
MOST_WHOLE_BYTES = 8 * 2**20
TOO_LARGE = {
    "code": "local_too_large",
    "hint": "Register large states as replicated or sharded; local ones should be small, as random generators are.",
}
_LEVEL = 6


def parts_of(layout: Layout, told: str, sizes: list[int], group: str, shared_digest: str) -> dict[str, Any]:
    """Return what a commit record says of a shard's parts; sizes and offsets in bytes."""
    by_part = {part: sum(size for size, each in zip(sizes, told, strict=True) if each == part) for part in "lsr"}
    return {
        "shared_at": layout.shared_at,
        "shared_bytes": layout.needed - layout.shared_at,
        "shared_digest": shared_digest,
        "sharded_bytes": by_part["s"],
        "local_bytes": by_part["l"],
        "group": group,
    }


def keep(path: Path, head: memoryview, parts: Mapping[str, Any]) -> None:
    """Put the head of a shard beside it, unless it is not the whole of what is not replicated. Raises TierError."""
    if parts["sharded_bytes"] or not parts["shared_bytes"] or len(head) > MOST_WHOLE_BYTES:
        return
    with copying.tier_errors(path):
        opening.replace(path.with_suffix(SUFFIX), zlib.compress(head, _LEVEL), mode=0o600)


def told(path: Path) -> str | None:
    """Return the kept head of a shard as reports carry it; None when there is none, or it is too large to travel."""
    try:
        packed = opening.small(path.with_suffix(SUFFIX), MOST_BYTES)
    except OSError:
        return None
    return base64.b64encode(packed).decode()


def is_too_large(path: Path, parts: Mapping[str, Any]) -> bool:
    """Whether a shard could be put together again, were its head not too large to travel."""
    if parts.get("sharded_bytes") or not parts.get("shared_bytes"):
        return False
    with contextlib.suppress(OSError):
        return path.with_suffix(SUFFIX).stat().st_size > MOST_BYTES
    return int(parts["shared_at"]) > MOST_WHOLE_BYTES


def too_large(parts: Mapping[str, Any]) -> str:
    """Return in words that a head does not travel, and what that costs."""
    return (
        f"What is local to the rank ({parts.get('local_bytes')} bytes, and the description of its state) is more than "
        f"the {MOST_BYTES} bytes that travel with a commit: if its node is lost, its newest step is that on storage."
    )


def forget(path: Path) -> None:
    """Remove a head that was told. It may be gone already, with its slot."""
    with contextlib.suppress(OSError):
        opening.remove(path.with_suffix(SUFFIX))


def sweep(folder: Path) -> None:
    """Remove the heads whose shards were written over before anybody told of them."""
    with contextlib.suppress(OSError):
        for name in opening.names(folder):
            path = folder / name
            if name.endswith(SUFFIX) and not path.with_suffix(".snap").exists():
                forget(path)


def unpacked(text: str, size: int) -> bytes:
    """Return a head of `size` bytes from how reports carry it. Raises CopyMissing when it is none."""
    try:
        inflating = zlib.decompressobj()
        head = inflating.decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise CopyMissing(f"The head of the shard cannot be unpacked: {error}.") from error
    if len(head) != size or not inflating.eof:
        raise CopyMissing(f"The head of the shard has not the {size} bytes it should have.")
    return head
