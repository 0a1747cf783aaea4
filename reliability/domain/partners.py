"""Which node keeps a second copy of whose newest shards in its memory?

Each node's shards go to the next slot's node that does not fail together with it; a node that has no such partner has
no copy, and that is said. Nodes without a failure domain fail each for themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node that holds a slot of the job. `domain` is empty when nobody named one."""

    slot: int
    node: str
    domain: str = ""


@dataclass(frozen=True)
class Pair:
    """`keeper` keeps the shards of `owner`; both are names of nodes."""

    owner: str
    keeper: str


@dataclass(frozen=True)
class Pairing:
    """Who keeps whose shards, and why a node has nobody."""

    pairs: tuple[Pair, ...]
    alone: dict[str, str]


def pair(places: Sequence[Place]) -> Pairing:
    """Return a partner for every node that can have one.

    Of the nodes outside the owner's domain the one with the fewest shards to keep is taken, the next after it first: no
    node keeps more than its share while another outside the domain keeps less.
    """
    ring = sorted(places, key=lambda place: place.slot)
    load = {place.node: 0 for place in ring}
    pairs, alone = [], {}
    for at, owner in enumerate(ring):
        following = [*ring[at + 1 :], *ring[:at]]
        apart = [each for each in following if each.node != owner.node and not _together(owner, each)]
        if not apart:
            alone[owner.node] = _why(owner, following)
            continue
        keeper = min(apart, key=lambda each: load[each.node])
        load[keeper.node] += 1
        pairs.append(Pair(owner.node, keeper.node))
    return Pairing(tuple(pairs), alone)


def _together(first: Place, second: Place) -> bool:
    return bool(first.domain) and first.domain == second.domain


def _why(owner: Place, others: Sequence[Place]) -> str:
    if not others:
        return f"{owner.node} is the only node of the job."
    return f"All nodes of the job lie in the failure domain {owner.domain} of {owner.node}."
