"""What do the copies of one snapshot come to on each tier, and in one word: how does it stand there?

Rows of copies are many (steps x ranks x tiers); what lists need of them is counted once for each snapshot and tier, in
the transaction that changed a copy. Both the count and the word are pure functions here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from reliability.domain.snapshots import CopyState, Tier


class Standing(StrEnum):
    """How a snapshot, or one rank's shard of it, stands on a tier."""

    ABSENT = "absent"
    WRITING = "writing"
    COMMITTED = "committed"
    VERIFIED = "verified"
    TRIAL_RESTORED = "trial_restored"
    SUPERSEDED = "superseded"
    CORRUPT = "corrupt"
    LOST = "lost"
    REMOVED = "removed"
    ABANDONED = "abandoned"


MEANING: Mapping[Standing, str] = {
    Standing.ABSENT: "No shard of it was ever committed here.",
    Standing.WRITING: "Not every rank's shard is committed here yet.",
    Standing.COMMITTED: "Every rank's shard is committed here; nobody has read it back yet.",
    Standing.VERIFIED: "Every rank's shard was read whole from here, and its digest was right.",
    Standing.TRIAL_RESTORED: "A trial restore on a standby loaded every rank's shard from here.",
    Standing.SUPERSEDED: "A newer snapshot came here first, so this one was left out: the newest wins.",
    Standing.CORRUPT: "A shard did not have the digest it was committed with; it is never restored.",
    Standing.LOST: "A shard was committed here and could not be read any more.",
    Standing.REMOVED: "It was here and was cleared away, or its slot was used again.",
    Standing.ABANDONED: "The history went on from an earlier step; it is never restored.",
}
"""A sentence for people, for each standing."""

GONE = (Standing.ABSENT, Standing.REMOVED, Standing.LOST, Standing.CORRUPT, Standing.SUPERSEDED)
"""Standings of what cannot be read whole, nor is being written: it is the same on an abandoned line."""

NEWEST_SLOTS = 3
"""A rank has at most so many slots in memory (docs/adr/0014-slots.md): what is older was written over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """What is known of one copy.

    Durations in seconds, `committed_s` in seconds since 1970; `superseded` are saves passed over since the copy before.
    """

    rank: int
    tier: str
    state: str
    size_bytes: int
    committed_s: float
    verified: bool = False
    trial_restored: bool = False
    stall_s: float | None = None
    drain_s: float | None = None
    superseded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTally:
    """A snapshot on one tier, in ranks. Each rank counts once, for the best of its copies.

    ranks: with a copy that can be read; verified, trial_restored: so many of those. corrupt, lost, removed: ranks with
    none that can be read, by what the best of theirs is. ever: ranks that ever had one. size_bytes: one shard a rank.
    stall_s, drain_s: of the slowest rank. complete_s: when the last of the ranks was committed first, in
    seconds since 1970.
    """

    ranks: int = 0
    verified: int = 0
    trial_restored: int = 0
    corrupt: int = 0
    lost: int = 0
    removed: int = 0
    ever: int = 0
    size_bytes: int = 0
    stall_s: float | None = None
    drain_s: float | None = None
    complete_s: float | None = None
    superseded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A snapshot over all tiers: ranks that can be read from any, and from one that survives its host's memory."""

    held: int
    durable: int
    tiers: Mapping[Tier, TierTally]


DURABLE = (Tier.SSD, Tier.STORAGE)


def tally(copies: Iterable[CopyFacts]) -> Tally:
    """Return what the copies of one snapshot come to, with an entry for every tier."""
    by_tier: dict[str, dict[int, list[CopyFacts]]] = defaultdict(lambda: defaultdict(list))
    held: set[int] = set()
    durable: set[int] = set()
    for copy in copies:
        by_tier[copy.tier][copy.rank].append(copy)
        if copy.state == CopyState.COMMITTED:
            held.add(copy.rank)
            if copy.tier in DURABLE:
                durable.add(copy.rank)
    tiers = {tier: _on_tier(by_tier.get(tier.value, {})) for tier in Tier}
    return Tally(held=len(held), durable=len(durable), tiers=tiers)


def _on_tier(by_rank: Mapping[int, list[CopyFacts]]) -> TierTally:
    usable = {rank: [copy for copy in copies if copy.state == CopyState.COMMITTED] for rank, copies in by_rank.items()}
    usable = {rank: copies for rank, copies in usable.items() if copies}
    gone = [{copy.state for copy in copies} for rank, copies in by_rank.items() if rank not in usable]
    every = [copy for copies in by_rank.values() for copy in copies]
    corrupt = sum(CopyState.CORRUPT in states for states in gone)
    lost = sum(CopyState.LOST in states and CopyState.CORRUPT not in states for states in gone)
    return TierTally(
        ranks=len(usable),
        verified=sum(any(copy.verified for copy in copies) for copies in usable.values()),
        trial_restored=sum(any(copy.trial_restored for copy in copies) for copies in usable.values()),
        corrupt=corrupt,
        lost=lost,
        removed=len(gone) - corrupt - lost,
        ever=len(by_rank),
        size_bytes=sum(max(copy.size_bytes for copy in copies) for copies in usable.values()),
        stall_s=max((copy.stall_s for copy in every if copy.stall_s is not None), default=None),
        drain_s=max((copy.drain_s for copy in every if copy.drain_s is not None), default=None),
        complete_s=max((min(copy.committed_s for copy in copies) for copies in usable.values()), default=None),
        superseded=max((copy.superseded for copy in every), default=0),
    )


def standing(found: TierTally, *, ranks: int, overtaken: bool) -> Standing:
    """Return how a snapshot of `ranks` ranks stands on a tier. `overtaken`: a newer one is complete there.

    Says nothing of lineage: whether the line was abandoned changes with every restore, so that is judged when it is
    looked at (`seen`).
    """
    if found.ranks >= ranks:
        return _whole(found, ranks)
    if found.corrupt:
        return Standing.CORRUPT
    if found.lost:
        return Standing.LOST
    if found.removed:
        return Standing.REMOVED
    if overtaken:
        return Standing.SUPERSEDED
    return Standing.WRITING if found.ranks else Standing.ABSENT


def _whole(found: TierTally, ranks: int) -> Standing:
    if found.trial_restored >= ranks:
        return Standing.TRIAL_RESTORED
    return Standing.VERIFIED if found.verified >= ranks else Standing.COMMITTED


def seen(stored: Standing, *, in_line: bool) -> Standing:
    """Return the standing that people see: what lies beside the line that goes on is abandoned, unless it is gone."""
    return stored if in_line or stored in GONE else Standing.ABANDONED


def of_copy(state: str, *, verified: bool, trial_restored: bool, in_line: bool) -> Standing:
    """Return how one rank's copy stands."""
    if state != CopyState.COMMITTED:
        return {
            CopyState.CORRUPT: Standing.CORRUPT,
            CopyState.LOST: Standing.LOST,
        }.get(CopyState(state), Standing.REMOVED)
    whole = Standing.TRIAL_RESTORED if trial_restored else Standing.VERIFIED if verified else Standing.COMMITTED
    return seen(whole, in_line=in_line)


def throughput(size_bytes: int, drain_s: float | None) -> float | None:
    """Return bytes per second from the end of the stall until all was durable, None when that was not measured."""
    return size_bytes / drain_s if drain_s and size_bytes else None


def spans(ranks: Iterable[int]) -> str:
    """Return ranks in words: '0-62, 64'."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
