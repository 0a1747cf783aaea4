"""What is known of nodes now, as their condition is derived from it? A few queries, however many nodes there are."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q

from reliability.domain.failover import State
from reliability.domain.health import CheckSeen, HoldSeen, IncidentSeen, Rules, Seen, control_plane_suspected
from reliability.models import Failover, Hold, Incident, Node, NodeCheck, NodeEvent
from reliability.selectors import core, maintenance, quarantined

TOGETHER = timedelta(seconds=10)
"""Nodes that fall silent together cross the limit one after the other, within so much."""
ALL = 50
"""For more nodes than this, rows of all nodes are read instead of rows of these."""


def seen(
    nodes: Sequence[Node], *, silent: Collection[int], now: datetime, since: datetime | None, rules: Rules
) -> dict[int, Seen]:
    """Return node -> what is known of it. `since`: since when heartbeats could be taken in, None when they cannot."""
    keys = [node.pk for node in nodes]
    some = Q() if len(keys) > ALL else Q(node__in=keys)
    checks = _checks(some, now)
    incidents = _incidents(some)
    holds = _holds(some)
    worsened = _worsened(now, rules)
    quarantines = quarantined.by_node(nodes)
    listening = (since or now).timestamp()
    return {
        node.pk: Seen(
            silent_since=node.last_seen_at.timestamp() if node.pk in silent and node.last_seen_at else None,
            heard_told=f"{node.last_seen_at:%H:%M:%S} UTC" if node.last_seen_at else "",
            listening_since=listening,
            checks=tuple(checks[node.pk]),
            incidents=tuple(incidents[node.pk]),
            holds=tuple(holds[node.pk]),
            quarantines=quarantines.get(node.pk, ()),
            worsened=tuple(worsened.get(node.pk, ())),
        )
        for node in nodes
    }


def _checks(some: Q, now: datetime) -> dict[int, list[CheckSeen]]:
    """Only those that do not pass, or are out of date: the others say nothing."""
    found: dict[int, list[CheckSeen]] = defaultdict(list)
    wanted = Q(ok=False) | Q(ok=None) | Q(stale_at__lt=now)
    for row in NodeCheck.objects.filter(some & wanted).defer("measured"):
        found[row.node_id].append(as_seen(row))
    return found


def as_seen(row: NodeCheck) -> CheckSeen:
    """Return a check as its condition is derived from it."""
    return CheckSeen(
        name=row.name,
        ok=row.ok,
        since=row.since.timestamp(),
        checked_at=row.checked_at.timestamp() if row.checked_at else None,
        limit_s=row.limit_s,
        reason=row.reason,
    )


def _incidents(some: Q) -> dict[int, list[IncidentSeen]]:
    found: dict[int, list[IncidentSeen]] = defaultdict(list)
    waiting = Failover.objects.filter(incident=OuterRef("pk"), state=State.AWAITING_APPROVAL).exclude(expires_at=None)
    rows = Incident.objects.filter(some, closed_at=None).exclude(node=None).annotate(asked=Exists(waiting))
    for row in rows.order_by("pk"):
        if row.node_id is not None:
            found[row.node_id].append(_incident(row, asked=row.asked))
    return found


def _incident(row: Incident, *, asked: bool) -> IncidentSeen:
    return IncidentSeen(
        number=row.pk,
        summary=row.summary,
        code=row.code,
        fault_class=row.fault_class,
        action=row.action,
        of_job=row.job_id is not None,
        since=row.opened_at.timestamp(),
        asked=asked,
    )


def _holds(some: Q) -> dict[int, list[HoldSeen]]:
    found: dict[int, list[HoldSeen]] = defaultdict(list)
    for row in core.active_holds().filter(some).order_by("pk"):
        found[row.node_id].append(_hold(row))
    return found


def _hold(row: Hold) -> HoldSeen:
    return HoldSeen(number=row.pk, owner=row.owner, reason=row.reason, since=row.created_at.timestamp())


def _worsened(now: datetime, rules: Rules) -> dict[int, list[float]]:
    """Return node -> when it got worse lately, without what was planned and what our own side is to blame for."""
    lately = now - timedelta(seconds=rules.flap_window_s)
    rows = NodeEvent.objects.filter(worse=True, at__gt=lately, at__lte=now).order_by("at")
    events = list(rows.values_list("node_id", "kind", "at"))
    if not events:
        return {}
    silences = [at for _, kind, at in events if kind == NodeEvent.Kind.HEALTH]
    total = Node.objects.count() if silences else 0
    planned = maintenance.times_of({node for node, _, _ in events}, since=lately, until=now)
    found: dict[int, list[float]] = defaultdict(list)
    for node, kind, at in events:
        shared = kind == NodeEvent.Kind.HEALTH and control_plane_suspected(silent=_near(silences, at), total=total)
        if not shared and not any(start <= at < end for start, end in planned.get(node, ())):
            found[node].append(at.timestamp())
    return found


def _near(instants: Sequence[datetime], at: datetime) -> int:
    """Return how many of these instants, in order, are about the same as one."""
    return bisect_right(instants, at + TOGETHER) - bisect_left(instants, at - TOGETHER)
