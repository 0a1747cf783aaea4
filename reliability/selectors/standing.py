"""What was found of nodes that lasts and may explain later why training stopped, and what says that it is over?

Something that lasts is told once, when it begins, and its incident may be closed long before it ends. So it is looked
up by node, whatever attempt or job it was found under.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db.models import Q

from reliability.domain.faults import Table
from reliability.domain.faults.weighing import awaits
from reliability.models import Finding, IncidentEvent, NodeCheck
from reliability.selectors import precision

STANDS_FOR = timedelta(hours=24)
"""A condition of which no end was told for so long explains nothing any more: its end may have been missed."""
MOST = 300
CHECKS = {
    "link-down": "links",
    "cable-unplugged": "links",
    "net-link-down": "links",
    "ib-port-down": "infiniband",
    "ib-flapping": "infiniband",
    "nvlink-down": "gpus",
}
"""The check of a node that would see the condition of a code: when it passes later, the condition is over."""


def lasting(table: Table) -> dict[str, str]:
    """Return code -> code that ends it, of the conditions that explain why training stopped."""
    ends = {row.clears: row.code for row in table.values() if row.clears}
    return {code: ends[code] for code, row in table.items() if row.enabled and row.standing_action and code in ends}


def awaited_codes(table: Table) -> list[str]:
    """Return the codes that are acted on only when they have stood for a while."""
    return [row.code for row in table.values() if awaits(row)]


def of_nodes(nodes: Iterable[int], table: Table, *, now: datetime) -> list[Finding]:
    """Return what was found there of the conditions that last, and of their ends, oldest first.

    Left out is what a later look of a check says is well, what a person closed, and what is only observed.
    """
    codes = lasting(table)
    places = set(nodes)
    rows = Finding.objects.filter(
        node__in=places, code__in=[*codes, *codes.values()], found_at__gte=now - STANDS_FOR, maintenance=None
    )
    found = list(rows.select_related("node", "job").order_by("-id")[:MOST])[::-1]
    if not any(each.code in codes for each in found):
        return []
    well, closed = _well(places, now), _closed_by_people(each.incident_id for each in found if each.incident_id)
    shadowed = precision.shadowed_codes((each.code, precision.group_of(each.node)) for each in found)
    return [
        each
        for each in found
        if (each.code, precision.group_of(each.node)) not in shadowed
        and each.incident_id not in closed
        and not each.found_at < well.get((each.node_id, CHECKS.get(each.code, "")), each.found_at)
    ]


def _well(nodes: Collection[int], now: datetime) -> dict[tuple[int, str], datetime]:
    """Return when each check was last seen to pass, of those that are not out of date."""
    fresh = Q(stale_at=None) | Q(stale_at__gt=now)
    rows = NodeCheck.objects.filter(fresh, node__in=nodes, ok=True, name__in=set(CHECKS.values()))
    return {(row.node_id, row.name): row.checked_at for row in rows.exclude(checked_at=None) if row.checked_at}


def _closed_by_people(incidents: Iterable[int]) -> set[int]:
    """Return the closed incidents that a person closed: what they were about has been looked after."""
    events = IncidentEvent.objects.filter(
        incident__in=set(incidents), incident__closed_at__isnull=False, kind=IncidentEvent.Kind.CLOSED
    )
    return set(events.values_list("incident_id", flat=True))
