"""Which planned times cover which nodes, now and when something was found? Server time only."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import QuerySet

from reliability.domain import faults
from reliability.models import Finding, MaintenanceWindow, Node

GRACE = timedelta(hours=1)
"""A node that stays silent after its planned time counts as silent from its end on, where that ended so lately."""

Scope = MaintenanceWindow.Scope


def windows(since: datetime, until: datetime) -> QuerySet[MaintenanceWindow]:
    """Return the windows that share an instant with [since, until]."""
    rows = MaintenanceWindow.objects.filter(starts_at__lte=until, ends_at__gt=since)
    return rows.prefetch_related("nodes").order_by("starts_at", "id")


def state_of(window: MaintenanceWindow, now: datetime) -> str:
    """Return planned, under way or over."""
    if now < window.starts_at < window.ends_at:
        return "planned"
    return "under way" if window.starts_at <= now < window.ends_at else "over"


def is_of(window: MaintenanceWindow, node: Node) -> bool:
    """Return whether a window is about a node."""
    if window.scope == Scope.ALL:
        return True
    if window.scope == Scope.DOMAIN:
        return bool(node.failure_domain) and node.failure_domain == window.domain
    return any(each.pk == node.pk for each in window.nodes.all())


def nodes_of(window: MaintenanceWindow) -> list[Node]:
    """Return the nodes that a window is about as things stand."""
    if window.scope == Scope.ALL:
        return list(Node.objects.order_by("name"))
    if window.scope == Scope.DOMAIN:
        return list(Node.objects.filter(failure_domain=window.domain).order_by("name"))
    return sorted(window.nodes.all(), key=lambda node: node.name)


def current(now: datetime, nodes: Iterable[Node] | None = None) -> dict[int, list[MaintenanceWindow]]:
    """Return node -> the windows it is in now; nodes without one are not in it. One query while nothing is planned."""
    found: dict[int, list[MaintenanceWindow]] = defaultdict(list)
    rows = [row for row in windows(now, now) if row.starts_at <= now < row.ends_at]
    if not rows:
        return {}
    for node in Node.objects.all() if nodes is None else nodes:
        for window in rows:
            if is_of(window, node):
                found[node.pk].append(window)
    return dict(found)


def ended_lately(now: datetime, nodes: Collection[Node]) -> dict[int, datetime]:
    """Return node -> when its last planned time ended, of those that ended within GRACE."""
    rows = [row for row in windows(now - GRACE, now) if row.ends_at <= now]
    found: dict[int, datetime] = {}
    for window in rows:
        for node in nodes:
            if is_of(window, node):
                found[node.pk] = max(window.ends_at, found.get(node.pk, window.ends_at))
    return found


def times_of(nodes: Collection[int], *, since: datetime, until: datetime) -> dict[int, list[tuple[datetime, datetime]]]:
    """Return node -> the planned times, start and end, that it has between two instants, by primary keys."""
    rows = list(windows(since, until))
    found: dict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
    for node in Node.objects.filter(pk__in=list(nodes)) if rows else ():
        found[node.pk] = [(row.starts_at, row.ends_at) for row in rows if is_of(row, node)]
    return found


def told(window: MaintenanceWindow) -> str:
    """Return a window in words, for reasons."""
    return f"planned maintenance until {window.ends_at:%Y-%m-%d %H:%M} UTC ({window.reason})"


def of_findings(findings: Sequence[Finding]) -> tuple[faults.Maintenance, ...]:
    """Return the planned times that findings may fall into."""
    if not findings:
        return ()
    instants = [each.found_at for each in findings]
    rows = list(windows(min(instants), max(instants)))
    nodes = {each.node_id: each.node for each in findings} if rows else {}
    return tuple(
        faults.Maintenance(
            node=node.name,
            start=window.starts_at.timestamp(),
            end=window.ends_at.timestamp(),
            reason=window.reason,
            observe=window.observe,
            stay=window.stay,
            quiet=window.quiet,
        )
        for window in rows
        for node in nodes.values()
        if is_of(window, node)
    )


def quieting(finding: Finding) -> MaintenanceWindow | None:
    """Return the window that makes a finding of reachability no incident at all, if there is one."""
    for window in windows(finding.found_at, finding.found_at):
        inside = window.starts_at <= finding.found_at < window.ends_at
        if window.quiet and inside and is_of(window, finding.node):
            return window
    return None


def of_node(node: Node, now: datetime) -> list[MaintenanceWindow]:
    """Return the windows of a node that are not over."""
    rows = MaintenanceWindow.objects.filter(ends_at__gt=now).prefetch_related("nodes").order_by("starts_at", "id")
    return [window for window in rows if is_of(window, node)]
