"""Which nodes, or which hardware under several names, have had hardware incidents again and again?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reliability.domain.faults import FaultClass
from reliability.domain.health import hardware
from reliability.models import Incident, Node
from reliability.selectors import quarantined

DAY = timedelta(days=1)
SHORT, LONG = 30 * DAY, 90 * DAY


@dataclass(frozen=True)
class Offender:
    """One machine: the names it had, its ids as people read them, and its hardware incidents."""

    nodes: tuple[Node, ...]
    identities: tuple[str, ...]
    in_30_days: int
    in_90_days: int
    newest: Incident
    quarantined: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return tuple(node.name for node in self.nodes)


def repeat_offenders(now: datetime, *, least: int = 1) -> list[Offender]:
    """Return machines with at least so many hardware incidents in 90 days, most of the last 30 days first.

    Names that carry the same hardware id are one machine; ids that several live nodes share say nothing.
    """
    rows = Incident.objects.filter(fault_class=FaultClass.HARDWARE, opened_at__gt=now - LONG, opened_at__lte=now)
    by_node: dict[int, list[Incident]] = defaultdict(list)
    for row in rows.exclude(node=None).exclude(failovers__drills__isnull=False).order_by("-opened_at", "-pk"):
        if row.node_id is not None:
            by_node[row.node_id].append(row)
    nodes = list(Node.objects.order_by("name")) if by_node else []
    barred = set(quarantined.watched())
    found = [_offender(ids, group, by_node, now, barred) for ids, group in _machines(nodes)]
    lines = [line for line in found if line is not None and line.in_90_days >= least]
    return sorted(lines, key=lambda line: (-line.in_30_days, -line.in_90_days, line.names))


def _machines(nodes: Iterable[Node]) -> list[tuple[set[str], list[Node]]]:
    """Return the nodes in groups that share hardware, with its ids; two that share nothing are two."""
    nodes = list(nodes)
    shared = quarantined.shared(nodes)
    groups: list[tuple[set[str], list[Node]]] = []
    for node in nodes:
        ids, members = set(hardware.identities(node.hardware_ids) - shared), [node]
        apart = []
        for known, others in groups:
            if known & ids:
                ids, members = ids | known, [*others, *members]
            else:
                apart.append((known, others))
        groups = [*apart, (ids, members)]
    return [(ids, sorted(members, key=lambda node: node.name)) for ids, members in groups]


def _offender(
    ids: set[str], group: list[Node], by_node: Mapping[int, list[Incident]], now: datetime, barred: set[int]
) -> Offender | None:
    incidents = [row for node in group for row in by_node.get(node.pk, ())]
    if not incidents:
        return None
    return Offender(
        nodes=tuple(group),
        identities=tuple(map(hardware.spoken, sorted(ids))),
        in_30_days=sum(row.opened_at > now - SHORT for row in incidents),
        in_90_days=len(incidents),
        newest=max(incidents, key=lambda row: (row.opened_at, row.pk)),
        quarantined=any(node.pk in barred for node in group),
    )
