"""Is the same code on so many nodes at once one event of a job or of the cluster, rather than the fault of each node?

A crashed program, a switch, a driver update or the power of a row reaches many nodes within seconds. Blaming each of
them would empty the standbys and cure nothing: what would move or mark nodes is held back until a person releases it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reliability.errors import InvalidInput

OWN_PROOFS = ("node-lost", "agent-silent")
"""Codes with a rule of their own (two proofs, and the suspicion of the control plane), which counts nodes already."""
LEAST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class RadiusRule:
    """When many nodes are too many: more than `share` of them, or `nodes` of them, within `window_s` seconds.

    At least two nodes either way. Raises InvalidInput for values that would hold back everything or nothing.
    """

    share: float = 0.5
    nodes: int = 8
    window_s: float = 60.0

    def __post_init__(self) -> None:
        """Raise InvalidInput where a value makes no sense."""
        if not 0 < self.share <= 1:
            raise InvalidInput("radius_share", f"{self.share:g} is no share", hint="Above 0 and at most 1, as 0.5.")
        if self.nodes < 2:
            raise InvalidInput(
                "radius_nodes", f"{self.nodes} is less than two", hint="One node is never many: 2 or more, as 8."
            )
        if not LEAST_SECONDS <= self.window_s <= 3600:
            raise InvalidInput("radius_window_s", f"{self.window_s:g} s", hint="From 1 to 3600 seconds, as 60.")

    def holds(self, hit: int, total: int) -> bool:
        """Return whether so many nodes of so many are too many to blame."""
        return hit > 1 and (hit > self.share * total or hit >= self.nodes)

    @property
    def sentence(self) -> str:
        """The rule in words."""
        return f"more than {100 * self.share:g} % of the nodes, or {self.nodes} of them, within {self.window_s:g} s"


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """That a code was found on a node, seconds of the server's clock."""

    code: str
    node: str
    at: float


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far a code reached: the nodes it was seen on within the window, of how many of the job or the cluster."""

    code: str
    nodes: tuple[str, ...]
    total: int
    of: str
    window_s: float

    @property
    def sentence(self) -> str:
        """It in words, with what to look for."""
        return (
            f"{self.code} was seen on {len(self.nodes)} of {self.total} nodes of the {self.of} within "
            f"{self.window_s:.0f} s: look for something they share (power, switch, driver, the job itself) before "
            "blaming each node."
        )


def most_at_once(sightings: Iterable[Sighting], window_s: float) -> frozenset[str]:
    """Return the largest set of nodes that were seen within any stretch of `window_s` seconds."""
    ordered = sorted(sightings, key=lambda each: each.at)
    best: frozenset[str] = frozenset()
    first, counts = 0, dict[str, int]()
    for each in ordered:
        counts[each.node] = counts.get(each.node, 0) + 1
        while each.at - ordered[first].at > window_s:
            gone = ordered[first].node
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            first += 1
        if len(counts) > len(best):
            best = frozenset(counts)
    return best


def reach(code: str, sightings: Sequence[Sighting], *, total: int, of: str, rule: RadiusRule) -> Reach | None:
    """Return how far a code reached when that is too far to blame single nodes, else None."""
    if code in OWN_PROOFS:
        return None
    hit = most_at_once([each for each in sightings if each.code == code], rule.window_s)
    if not rule.holds(len(hit), max(total, len(hit))):
        return None
    return Reach(code=code, nodes=tuple(sorted(hit)), total=max(total, len(hit)), of=of, window_s=rule.window_s)
