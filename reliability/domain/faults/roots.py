"""Which finding is the root? How far each code reached and what policy makes of it are known before it is chosen.

What many nodes show at once is no fault of one node, so a fault of a single node that calls for another node comes
before it. An end that nobody can explain gives way to such an event, and to a fault that policy treats more mildly:
both explain it.
"""

from collections.abc import Iterable, Mapping, Sequence

from reliability.domain.faults.findings import Context
from reliability.domain.faults.radius import Reach, Sighting, reach
from reliability.domain.faults.weighing import Weighed
from reliability.domain.faults.words import STRENGTH, Action, FaultClass

BLAMING = (FaultClass.HARDWARE, FaultClass.THERMAL)
"""Classes that blame a node."""


def reaches(weighed: Sequence[Weighed], nodes: int | None, context: Context) -> dict[str, Reach]:
    """Return by code how far those that blame nodes reached, in the job or over the cluster, where that is too far."""
    own = [
        Sighting(code=each.row.code, node=each.finding.node, at=each.finding.at) for each in weighed if not each.aside
    ]
    total = nodes or len({each.node for each in own})
    blaming = [each.row.code for each in weighed if each.fault_class in BLAMING or each.action is Action.FAILOVER]
    found = {}
    for code in dict.fromkeys(blaming):
        here = reach(code, own, total=total, of="job", rule=context.radius) if len(own) > 1 else None
        wide = [*own, *context.sightings]
        there = reach(code, wide, total=context.cluster_nodes, of="cluster", rule=context.radius)
        told = here or (there if context.cluster_nodes else None)
        if told is not None:
            found[code] = told
    return found


def decisive(weighed: Iterable[Weighed]) -> list[Weighed]:
    """Return the findings that call for something by themselves."""
    return [each for each in weighed if not each.row.follow_up and each.action is not Action.OBSERVE]


def root_of(items: Sequence[Weighed], wide: Mapping[str, Reach]) -> Weighed:
    """Return the root among decisive findings: the earliest of those that weigh most."""
    explained = any(each.row.code in wide or _milder(each) for each in items)

    def weight(item: Weighed) -> tuple[bool, bool, bool, int]:
        moves = item.action is Action.FAILOVER
        gives_way = explained and item.row.unexplained and not item.notes
        return not gives_way, moves and item.row.code not in wide, moves, _strength(item)

    return max(items, key=weight)


def _milder(item: Weighed) -> bool:
    return item.tabled is not None and STRENGTH[item.action] < STRENGTH[item.tabled]


def _strength(item: Weighed) -> int:
    """What policy holds for a person weighs what the table says of it: its consequences do not outrank it."""
    return max(STRENGTH[item.action], STRENGTH[item.tabled or item.action])


def meanwhile(root: Weighed, items: Iterable[Weighed], wide: Mapping[str, Reach], context: Context) -> Action:
    """What is done while nothing is moved: what ended is started again where it is, once; then a person is asked.

    While ranks go on, only what else was found counts: a job that hangs is started again all the same.
    """
    others = [each for each in items if each.row.code not in wide]
    if not context.ranks_ended:
        return max((each.action for each in others), key=STRENGTH.__getitem__, default=Action.OBSERVE)
    held = root.row.code in context.held_before or any(each.action is Action.HOLD and _milder(each) for each in others)
    return Action.HOLD if held else Action.RESTART_IN_PLACE
