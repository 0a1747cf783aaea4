"""From where could a job go on if a node died now, and which ranks keep a newer snapshot from being that?

The same rule as in domain/restore.py, over sets of ranks, because pages ask it for every node of every job each second:
a copy on storage helps always; one on a node helps that node, and others while it lives and lets them read; a shard
that can be put together from another rank's (domain/parts.py) is as good as there while a lender lives.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reliability.domain.snapshots import SnapshotId


@dataclass(slots=True)
class Readable:
    """Which ranks of one snapshot can be read, by what their reading depends on.

    by_tier: tier -> ranks that lie there where they run, or on storage. holders: rank -> nodes any one of which is
    enough; '' is storage, which no node takes along.
    """

    any_tier: set[int] = field(default_factory=set)
    by_tier: dict[str, set[int]] = field(default_factory=dict)
    holders: dict[int, set[str]] = field(default_factory=dict)

    def add(self, rank: int, tier: str, node: str, *, runs_on: str, serves: bool = False) -> None:
        """Count one committed copy in. `node` is empty for storage, `runs_on` the node that runs the rank.

        `serves`: the copy's node lives and lets others read.
        """
        if node and node != runs_on and not serves:
            return
        self.lend(rank, node)
        if not node or node == runs_on:
            self.by_tier.setdefault(tier, set()).add(rank)

    def lend(self, rank: int, node: str) -> None:
        """Count in that a rank's shard can be read, or put together, while this node lives."""
        self.any_tier.add(rank)
        self.holders.setdefault(rank, set()).add(node)

    def complete(self, ranks: int, *, tier: str = "", without: Collection[str] = ()) -> bool:
        """Return whether every rank can be read (from that tier), also when all nodes of `without` are gone."""
        if tier:
            return len(self.by_tier.get(tier, ())) >= ranks
        if len(self.any_tier) < ranks:
            return False
        return all(holders.difference(without) for holders in self.holders.values())

    def lacking(self, ranks: int) -> list[int]:
        """Return the ranks that cannot be read from anywhere."""
        return [rank for rank in range(ranks) if rank not in self.any_tier]


def newest(
    found: Mapping[SnapshotId, Readable], ranks: int, *, tier: str = "", without: Collection[str] = ()
) -> SnapshotId | None:
    """Return the newest snapshot that can be restored (from that tier alone; when those nodes are gone), or None."""
    fit = (each for each, readable in found.items() if readable.complete(ranks, tier=tier, without=without))
    return max(fit, key=lambda each: (each.step, each.epoch), default=None)


def nodes_at_risk(
    found: Mapping[SnapshotId, Readable], ranks: int, nodes: Iterable[str]
) -> dict[str, SnapshotId | None]:
    """Return for each node from which snapshot the job would go on if that node was gone now."""
    ordered = sorted(found, key=lambda each: (each.step, each.epoch), reverse=True)
    whole = [each for each in ordered if found[each].complete(ranks)]
    fatal = {each: _fatal(found[each]) for each in whole}
    return {node: next((each for each in whole if node not in fatal[each]), None) for node in nodes}


def _fatal(readable: Readable) -> set[str]:
    """Return the nodes without which a rank could not be read."""
    return {next(iter(holders)) for holders in readable.holders.values() if len(holders) == 1} - {""}


def held_back(
    found: Mapping[SnapshotId, Readable], ranks: int, restorable: SnapshotId | None, order: Sequence[SnapshotId]
) -> tuple[SnapshotId, list[int]] | None:
    """Return the newest snapshot that is newer than the restorable one, and the ranks that it lacks; None for none.

    `order`: snapshots of the line, newest first, of which `found` holds the readable copies.
    """
    for each in order:
        if restorable is not None and (each.step, each.epoch) <= (restorable.step, restorable.epoch):
            return None
        return each, found[each].lacking(ranks) if each in found else list(range(ranks))
    return None
