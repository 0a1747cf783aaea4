"""Which snapshot does a recovery start from, and where does each rank read it (M6)?

The newest step of the current line of history that every rank can read. Order is by lineage and step, never by time.
A copy in memory or on an SSD helps only the node it lies on; the storage tier helps all.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reliability.domain.snapshots import Copy, CopyState, EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import InvalidInput, NoRestorePoint

_SPEED = {tier: place for place, tier in enumerate(Tier)}
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

    def usable(self, copy: Copy) -> bool:
        """Return whether the node that will run the rank can read this copy."""
        if copy.state is not CopyState.COMMITTED:
            return False
        if copy.tier is Tier.STORAGE:
            return True
        return bool(copy.node) and copy.node == self.placement.get(copy.rank) and copy.node not in self.lost_nodes

    def why_not(self, copy: Copy) -> str:
        """Say in words why a copy that is not usable is none."""
        if copy.state is not CopyState.COMMITTED:
            return f"its {copy.tier} copy is {copy.state}"
        if copy.node in self.lost_nodes:
            return f"its {copy.tier} copy is on the lost node {copy.node}"
        return f"its {copy.tier} copy is on {copy.node or 'no named node'}, which will not run it"


def _grouped(copies: Iterable[Copy]) -> dict[SnapshotId, dict[int, list[Copy]]]:
    grouped: dict[SnapshotId, dict[int, list[Copy]]] = defaultdict(lambda: defaultdict(list))
    for copy in copies:
        grouped[copy.snapshot][copy.rank].append(copy)
    return grouped


def _sources(by_rank: ByRank, situation: _Situation, ranks: int) -> dict[int, tuple[Copy, ...]]:
    return {
        rank: tuple(
            sorted(
                (copy for copy in by_rank.get(rank, ()) if situation.usable(copy)),
                key=lambda copy: (_SPEED[copy.tier], copy.path),
            )
        )
        for rank in range(ranks)
    }


def _missing(by_rank: ByRank, lacking: Sequence[int], situation: _Situation) -> str:
    rank = lacking[0]
    causes = dict.fromkeys(situation.why_not(copy) for copy in by_rank.get(rank, ()))
    detail = "; ".join(causes) if causes else "no copy of it was ever committed"
    return f"{_listed(lacking)} cannot read it (rank {rank}: {detail})"


def _where_read(sources: Mapping[int, tuple[Copy, ...]]) -> tuple[str, ...]:
    tiers: dict[Tier, list[int]] = defaultdict(list)
    for rank, copies in sources.items():
        tiers[copies[0].tier].append(rank)
    return tuple(f"{_listed(tiers[tier]).capitalize()} from {tier}." for tier in Tier if tier in tiers)


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
) -> RestorePoint:
    """Return the newest step of the current lineage for which each of `ranks` ranks has a readable copy.

    `placement` names the node that will run each rank; a rank without one can only read from storage. Raises
    NoRestorePoint with the reasons when there is no such step, InvalidInput for a bad number of ranks.
    """
    if ranks < 1:
        raise InvalidInput("ranks", f"{ranks} is not a number of ranks", hint="A job has at least one rank.")
    situation = _Situation(placement, lost_nodes)
    ceilings = lineage_ceilings(starts)
    grouped = _grouped(copies)
    skipped: list[str] = []
    for snapshot in sorted(grouped, key=lambda each: (each.step, each.epoch), reverse=True):
        if not in_lineage(snapshot, ceilings):
            skipped.append(f"{_name(snapshot)} lies on an abandoned line: a later epoch started before it.")
            continue
        if snapshot in distrusted:
            skipped.append(f"{_name(snapshot)} is distrusted: the job failed again after restoring it.")
            continue
        sources = _sources(grouped[snapshot], situation, ranks)
        lacking = [rank for rank, found in sources.items() if not found]
        if lacking:
            skipped.append(f"{_name(snapshot)}: {_missing(grouped[snapshot], lacking, situation)}.")
            continue
        newest = (
            f"{_name(snapshot)} is the newest that all {ranks} ranks can read."
            if ranks > 1
            else (f"{_name(snapshot)} is the newest that the rank can read.")
        )
        return RestorePoint(snapshot, sources, (newest, *_where_read(sources)), tuple(skipped))
    raise _nothing_left(skipped)
