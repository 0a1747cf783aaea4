"""Which snapshot does a recovery start from, and where does each rank read it (M6)?

The newest step of the current line of history that every rank can read. Order is by lineage and step, never by time.
The storage tier helps all; a copy in memory or on an SSD helps the node it lies on, and others while that node serves
it. A shard that nobody holds any more may still be put together from what other ranks hold (domain/parts.py).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reliability.domain.parts import Replica, ShardParts, replicas
from reliability.domain.snapshots import Copy, CopyState, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import InvalidInput, NoRestorePoint

_OWN = {Tier.MEMORY: 0, Tier.PARTNER: 1, Tier.SSD: 4, Tier.STORAGE: 6}
_ELSEWHERE = {Tier.MEMORY: 2, Tier.PARTNER: 3, Tier.SSD: 5, Tier.STORAGE: 6}
"""How fast a source is, fastest first: any memory before any disk, the node's own before another's, storage last."""
_SHOWN_RANKS = 8
_SHOWN_SKIPS = 5

ByRank = Mapping[int, Sequence[Copy]]


@dataclass(frozen=True)
class RestorePoint:
    """What a recovery starts from.

    `sources` names for every rank its readable copies, best first. `reasons` say why it was chosen, `skipped` why each
    newer snapshot was not.
    """

    snapshot: SnapshotId
    sources: Mapping[int, tuple[Copy, ...]]
    reasons: tuple[str, ...]
    skipped: tuple[str, ...]


def _name(snapshot: SnapshotId) -> str:
    return f"Step {snapshot.step} (epoch {snapshot.epoch})"


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:_SHOWN_RANKS])
    more = f" and {len(ranks) - _SHOWN_RANKS} more" if len(ranks) > _SHOWN_RANKS else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"


@dataclass(frozen=True)
class _Situation:
    """Where ranks will run and what cannot be read."""

    placement: Mapping[int, str]
    lost_nodes: Collection[str]
    serving: Collection[str]

    def usable(self, copy: Copy) -> bool:
        """Return whether the node that will run the rank can read this copy."""
        if copy.state is not CopyState.COMMITTED:
            return False
        if copy.tier is Tier.STORAGE:
            return True
        return self.reaches(copy, copy.rank)

    def reaches(self, copy: Copy, rank: int) -> bool:
        """Return whether the node that will run a rank can read what lies on the node of a copy."""
        if not copy.node or copy.node in self.lost_nodes or rank not in self.placement:
            return False
        return copy.node == self.placement[rank] or copy.node in self.serving

    def is_own(self, copy: Copy) -> bool:
        """Return whether the copy lies on the node that will run the rank."""
        return copy.node == self.placement.get(copy.rank)

    def slowness(self, copy: Copy) -> tuple[int, bool, int, str]:
        """Return what sorts sources: the fastest first, whole shards before what must be put together.

        Each rank begins with another lender, so that not all of a lost node's ask the same one.
        """
        place = (_OWN if self.is_own(copy) else _ELSEWHERE)[copy.tier]
        if isinstance(copy, Replica):
            return place, True, copy.turn, copy.path
        return place, False, 0, copy.path

    def why_not(self, copy: Copy) -> str:
        """Say in words why a copy that is not usable is none."""
        if copy.state is not CopyState.COMMITTED:
            return f"its {copy.tier} copy is {copy.state}"
        if copy.node in self.lost_nodes:
            return f"its {copy.tier} copy is on the lost node {copy.node}"
        return f"its {copy.tier} copy is on {copy.node or 'no named node'}, which will not run it and serves nobody"


def _grouped(copies: Iterable[Copy]) -> dict[SnapshotId, dict[int, list[Copy]]]:
    grouped: dict[SnapshotId, dict[int, list[Copy]]] = defaultdict(lambda: defaultdict(list))
    for copy in copies:
        grouped[copy.snapshot][copy.rank].append(copy)
    return grouped


def _by_snapshot(parts: Iterable[ShardParts]) -> dict[SnapshotId, dict[int, ShardParts]]:
    found: dict[SnapshotId, dict[int, ShardParts]] = defaultdict(dict)
    for each in parts:
        found[each.snapshot][each.rank] = each
    return found


def _sources(
    by_rank: ByRank, parts: Mapping[int, ShardParts], situation: _Situation, ranks: int
) -> dict[int, tuple[Copy, ...]]:
    every = [copy for copies in by_rank.values() for copy in copies] if parts else []
    found = {}
    for rank in range(ranks):
        offered = [copy for copy in by_rank.get(rank, ()) if situation.usable(copy)]
        if not any(copy.tier is Tier.MEMORY and situation.is_own(copy) for copy in offered):
            lenders = [copy for copy in every if situation.reaches(copy, rank)]
            offered += replicas(rank, parts, lenders)
        found[rank] = tuple(sorted(offered, key=situation.slowness))
    return found


def _missing(by_rank: ByRank, lacking: Sequence[int], situation: _Situation) -> str:
    rank = lacking[0]
    causes = dict.fromkeys(situation.why_not(copy) for copy in by_rank.get(rank, ()))
    detail = "; ".join(causes) if causes else "no copy of it was ever committed"
    return f"{_listed(lacking)} cannot read it (rank {rank}: {detail})"


def _newest(snapshot: SnapshotId, ranks: int) -> str:
    who = f"all {ranks} ranks" if ranks > 1 else "the rank"
    return f"{_name(snapshot)} is the newest that {who} can read."


def _where_read(sources: Mapping[int, tuple[Copy, ...]], situation: _Situation) -> tuple[str, ...]:
    places: dict[tuple[tuple[int, bool], str], list[int]] = defaultdict(list)
    for rank, copies in sources.items():
        places[situation.slowness(copies[0])[:2], _place(copies[0], situation)].append(rank)
    return tuple(f"{_listed(ranks).capitalize()} from {place}." for (_, place), ranks in sorted(places.items()))


def _place(copy: Copy, situation: _Situation) -> str:
    if isinstance(copy, Replica):
        return f"the {copy.tier} of rank {copy.lender.rank} on {copy.node}"
    return str(copy.tier) if copy.tier is Tier.STORAGE or situation.is_own(copy) else f"{copy.tier} of {copy.node}"


def _nothing_left(skipped: Sequence[str]) -> NoRestorePoint:
    told = " ".join(skipped[:_SHOWN_SKIPS]) if skipped else "No snapshot was ever committed."
    more = f" {len(skipped) - _SHOWN_SKIPS} older ones fell out as well." if len(skipped) > _SHOWN_SKIPS else ""
    return NoRestorePoint(f"No step can be read by every rank. {told}{more}")


def choose(
    copies: Iterable[Copy],
    *,
    starts: Iterable[EpochStart],
    placement: Mapping[int, str],
    lost_nodes: Collection[str],
    distrusted: Collection[SnapshotId],
    ranks: int,
    parts: Iterable[ShardParts] = (),
    serving: Collection[str] = (),
) -> RestorePoint:
    """Return the newest step of the current lineage for which each of `ranks` ranks has a readable copy.

    `placement` names the node that will run each rank; a rank without one can only read from storage. `serving` are
    the nodes that let others read their memory and SSD; `parts` tells which shards can be put together. Raises
    NoRestorePoint with the reasons when there is no such step, InvalidInput for a bad number of ranks.
    """
    if ranks < 1:
        raise InvalidInput("ranks", f"{ranks} is not a number of ranks", hint="A job has at least one rank.")
    situation = _Situation(placement, lost_nodes, serving)
    told = _by_snapshot(parts)
    ceilings = lineage_ceilings(starts)
    grouped = _grouped(copies)
    skipped: list[str] = []
    for snapshot in sorted(grouped, key=lambda each: (each.step, each.epoch), reverse=True):
        if not in_lineage(snapshot, ceilings):
            skipped.append(f"{_name(snapshot)} lies on an abandoned line: a later epoch started before it.")
            continue
        if snapshot in distrusted:
            skipped.append(f"{_name(snapshot)} is distrusted: its page says why.")
            continue
        sources = _sources(grouped[snapshot], told.get(snapshot, {}), situation, ranks)
        lacking = [rank for rank, found in sources.items() if not found]
        if lacking:
            skipped.append(f"{_name(snapshot)}: {_missing(grouped[snapshot], lacking, situation)}.")
            continue
        reasons = (_newest(snapshot, ranks), *_where_read(sources, situation))
        return RestorePoint(snapshot, sources, reasons, tuple(skipped))
    raise _nothing_left(skipped)
