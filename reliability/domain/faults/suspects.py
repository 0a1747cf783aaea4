"""Who is behind consequences that accuse nobody: the rank that stayed behind, or the node that several peers lost?

A collective that times out is told by every healthy rank. The odd one is the rank that told nothing, or that had begun
fewer collectives than the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.domain.faults.findings import Context, Finding
from reliability.domain.faults.words import FaultClass

_TIMEOUTS = ("collective-timeout", "collective-progress", "collective-dump", "peer-silent")
_PAIRS = ("ib-unacknowledged", "connect-failed")


@dataclass(frozen=True)
class Suspect:
    """Who is suspected and why. `finding` is its own finding where it has one."""

    rank: int | None
    node: str
    finding: Finding | None
    reason: str
    fault_class: FaultClass
    lost_by_many: bool = False


def _rank(finding: Finding) -> int | None:
    told = finding.fields.get("rank")
    return finding.rank if finding.rank is not None else told if isinstance(told, int) else None


def _node_of(rank: int, findings: Sequence[Finding], context: Context) -> str:
    told = (finding.node for finding in findings if _rank(finding) == rank)
    return context.rank_nodes.get(rank) or next(told, "")


def _begun(findings: Sequence[Finding]) -> dict[int, tuple[int, Finding]]:
    """Return by rank how many collectives it had begun at least, with the finding that tells it."""
    begun: dict[int, tuple[int, Finding]] = {}
    for finding in findings:
        rank, number = _rank(finding), finding.fields.get("enqueued", finding.fields.get("seq"))
        if rank is not None and isinstance(number, int) and number > begun.get(rank, (-1, finding))[0]:
            begun[rank] = (number, finding)
    return begun


def rank_behind(findings: Sequence[Finding], context: Context) -> Suspect | None:
    """Return the rank that stayed behind a collective, None when nothing singles one out."""
    telling = [each for each in findings if each.code in _TIMEOUTS]
    return _least_begun(telling, context) or _silent(telling, context)


def _least_begun(telling: Sequence[Finding], context: Context) -> Suspect | None:
    begun = _begun(telling)
    if len(begun) < 2:
        return None
    least, most = min(number for number, _ in begun.values()), max(number for number, _ in begun.values())
    behind = sorted(rank for rank, (number, _) in begun.items() if number == least)
    if least == most or len(behind) != 1:
        return None
    rank = behind[0]
    reason = f"Rank {rank} stayed behind: it had begun {least} collectives, the others up to {most}."
    return Suspect(rank, _node_of(rank, telling, context), begun[rank][1], reason, FaultClass.SOFTWARE)


def _silent(telling: Sequence[Finding], context: Context) -> Suspect | None:
    told = {rank for rank in map(_rank, telling) if rank is not None}
    missing = sorted(set(range(context.ranks or 0)) - told)
    if len(missing) != 1 or not told:
        return None
    rank = missing[0]
    reason = f"Rank {rank} is the only one that told of no time-out: the {len(told)} others waited for it."
    return Suspect(rank, _node_of(rank, telling, context), None, reason, FaultClass.SOFTWARE)


def node_lost_by_many(findings: Sequence[Finding], context: Context) -> Suspect | None:
    """Return the one node that is an end of every broken pair, where there are at least two; None otherwise."""
    pairs = set()
    for finding in findings:
        peer = context.addresses.get(str(finding.fields.get("peer", "")))
        if finding.code in _PAIRS and peer is not None and peer != finding.node:
            pairs.add(frozenset((finding.node, peer)))
    common = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset[str]()
    if len(common) != 1:
        return None
    node = next(iter(common))
    own = next((each for each in findings if each.node == node and each.code in _PAIRS), None)
    reason = f"{node} is an end of all {len(pairs)} broken pairs of nodes."
    return Suspect(None, node, own, reason, FaultClass.NETWORK, lost_by_many=True)
