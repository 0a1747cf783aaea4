"""Which copies of the training state exist, and which of them belong to the history that goes on?

A step is complete when every rank's shard is committed. A snapshot belongs to the current lineage when no
later epoch started from an earlier step (M6, M7).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from reliability.errors import InvalidInput


class Tier(StrEnum):
    """Where a copy lies, fastest first (M5)."""

    MEMORY = "memory"
    PARTNER = "partner"
    SSD = "ssd"
    STORAGE = "storage"


class CopyState(StrEnum):
    """What is known of a copy."""

    COMMITTED = "committed"
    CORRUPT = "corrupt"
    LOST = "lost"
    DELETED = "deleted"


@dataclass(frozen=True, order=True)
class SnapshotId:
    """A snapshot of a job: the epoch that took it and the step after which it was taken."""

    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One shard on one tier. `node` is empty for the storage tier. `digest` is 'algorithm:hex'."""

    snapshot: SnapshotId
    rank: int
    tier: Tier
    node: str
    path: str
    size_bytes: int
    digest: str
    state: CopyState = CopyState.COMMITTED


@dataclass(frozen=True, kw_only=True)
class EpochStart:
    """How an epoch began: the snapshot it restored, or None for a start from nothing."""

    epoch: int
    restored: SnapshotId | None


def lineage_ceilings(starts: Iterable[EpochStart]) -> dict[int, int | None]:
    """Return for each epoch of the current line the highest step that still counts (None: no limit).

    Epochs missing from the result are abandoned whole. Walks back from the newest epoch along what each
    epoch restored.
    """
    by_epoch = {start.epoch: start for start in starts}
    if not by_epoch:
        return {}
    ceilings: dict[int, int | None] = {}
    epoch: int | None = max(by_epoch)
    ceiling: int | None = None
    while epoch is not None and epoch in by_epoch and epoch not in ceilings:
        ceilings[epoch] = ceiling
        restored = by_epoch[epoch].restored
        epoch, ceiling = (restored.epoch, restored.step) if restored else (None, None)
    return ceilings


def in_lineage(snapshot: SnapshotId, ceilings: Mapping[int, int | None]) -> bool:
    """Return whether the snapshot lies on the line of history that `ceilings` describes."""
    if snapshot.epoch not in ceilings:
        return False
    ceiling = ceilings[snapshot.epoch]
    return ceiling is None or snapshot.step <= ceiling


def newest_first(snapshots: Iterable[SnapshotId]) -> list[SnapshotId]:
    """Return snapshots by step, newest first; of one step the later epoch first."""
    return sorted(snapshots, key=lambda each: (each.step, each.epoch), reverse=True)


def complete_steps(copies: Iterable[Copy], ranks: int, tier: Tier | None = None) -> list[SnapshotId]:
    """Return the snapshots of which every rank 0..ranks-1 has a committed copy, newest first.

    With `tier`, only copies on that tier count. Says nothing about lineage or about who can read them.
    """
    committed: dict[SnapshotId, set[int]] = {}
    for copy in copies:
        if copy.state is CopyState.COMMITTED and tier in (None, copy.tier):
            committed.setdefault(copy.snapshot, set()).add(copy.rank)
    return newest_first(each for each, held in committed.items() if held.issuperset(range(ranks)))


def to_delete(
    copies: Iterable[Copy],
    keep: int,
    floor: int | None,
    ceilings: Mapping[int, int | None] | None = None,
) -> list[Copy]:
    """Return the copies of one tier (of one node) that may be removed, in the order given.

    `floor` is the newest step that is complete on storage in the current lineage; None means that nothing is safe
    there, so nothing is removed. Never removed: a copy at or above the floor, and the `keep` newest snapshots of the
    lineage. Copies on abandoned lines do not count among those kept. Raises InvalidInput when `keep` is below 1.
    """
    if keep < 1:
        raise InvalidInput("keep", f"{keep} would remove the last snapshot", hint="Keep at least one snapshot.")
    if floor is None:
        return []
    present = [copy for copy in copies if copy.state in (CopyState.COMMITTED, CopyState.CORRUPT)]
    current = {
        copy.snapshot
        for copy in present
        if copy.state is CopyState.COMMITTED and (ceilings is None or in_lineage(copy.snapshot, ceilings))
    }
    kept = set(newest_first(current)[:keep])
    abandoned = {copy.snapshot for copy in present} - current
    return [
        copy
        for copy in present
        if copy.snapshot not in kept and (copy.snapshot.step < floor or copy.snapshot in abandoned)
    ]
