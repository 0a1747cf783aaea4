"""What condition is each node in, by all that is known of it?

Derived anew every round from rows, by `domain.health.condition`; only what changed is written, with an event when the
state is another. The same is done at once for a single node when something is decided about it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from reliability import conf
from reliability.domain import health
from reliability.domain.health import Cause, Condition, NodeHealth, Rules, Seen
from reliability.domain.health.condition import INCIDENT, MARKED
from reliability.models import Incident, Node
from reliability.selectors import core, node_seen
from reliability.services import clock, dispatch, node_events, quarantine
from reliability.services.node_events import Kind

RULES = Rules()
HARDWARE = "hardware"


def derive_all(nodes: Sequence[Node], *, silent: Collection[int], now: datetime, since: datetime | None) -> None:
    """Derive the condition of these nodes; `silent` are those that count as such, `since` when listening began."""
    seen = node_seen.seen(nodes, silent=silent, now=now, since=since, rules=RULES)
    for node in nodes:
        _write(node, seen[node.pk], now)


def refresh(node: Node, *, now: datetime | None = None) -> None:
    """Derive the condition of one node at once, from what the database holds; the given row is put right too."""
    now = now or clock.now()
    since = core.listening_since(now)
    silent = {node.pk} if since is not None and is_silent(node, now, since) else set()
    derive_all([node], silent=silent, now=now, since=since)


def is_silent(node: Node, now: datetime, since: datetime, limit_s: float | None = None) -> bool:
    """Return whether nothing was heard of a node for longer than the limit, by default the silence limit."""
    return health.liveness(
        now=now.timestamp(),
        last_seen=node.last_seen_at.timestamp() if node.last_seen_at else None,
        listening_since=since.timestamp(),
        silence_s=conf.cluster_policy().silence_s if limit_s is None else limit_s,
    )


def blame(node: Node, incident: Incident) -> None:
    """An incident calls a node bad: its condition says so at once, and bad hardware is known again by its ids."""
    if incident.fault_class == HARDWARE:
        quarantine.put(node, reason=incident.summary, incident=incident)
    refresh(Node.objects.get(pk=node.pk))


def forgive(node: Node, *, by: str, note: str) -> None:
    """The last hold on a node was lifted by a person: what held it as bad is over, and nothing is known for a moment.

    The next round says whether it is heard.
    """
    quarantine.release_of(node, by=by, note=note)
    told = f"The hold on {node.name} was released by {by}: {note}"
    held = Incident.objects.filter(node=node, job=None, closed_at=None, action="hold")
    held.update(closed_at=clock.now(), close_reason=told)
    node.refresh_from_db()
    if node.health == NodeHealth.UNHEALTHY:
        _save(node, Condition(), clock.now())


def absolve(node: Node, incident: Incident, *, note: str) -> None:
    """What an incident called this node bad for is not its own after all: its condition is found anew."""
    quarantine.release_put_by(incident, node, note=note)
    node.refresh_from_db()
    before = _before(node)
    left = tuple(cause for cause in before.causes if cause.key not in (f"{INCIDENT}{incident.pk}", MARKED))
    if before.state == NodeHealth.UNHEALTHY or not left:
        _save(node, Condition(), clock.now())
    elif left != before.causes:
        _save(node, replace(before, causes=left), clock.now())


def _before(node: Node) -> Condition:
    causes = tuple(Cause.of(values) for values in node.health_causes)
    return Condition(state=NodeHealth(node.health), causes=causes, told=node.health_reason)


def _write(node: Node, seen: Seen, now: datetime) -> None:
    before = _before(node)
    found = health.derive(seen, before, now=now.timestamp(), rules=RULES)
    kept = [cause.as_values() for cause in found.causes]
    if (node.health, node.health_reason, node.health_causes) != (found.state, found.reason, kept):
        _save(node, found, now)


def _save(node: Node, found: Condition, now: datetime) -> None:
    """Write a condition, unless somebody else changed the state meanwhile: the next round looks again."""
    fields = {
        "health": found.state,
        "health_reason": found.reason,
        "health_causes": [cause.as_values() for cause in found.causes],
    }
    changed = node.health != found.state
    with transaction.atomic():
        rows = Node.objects.filter(pk=node.pk, health=node.health)
        if not rows.update(**fields, **({"health_since": now} if changed else {})):
            return
        if changed:
            _tell(node, found, now)
        dispatch.changed(f"node:{node.pk}", *(("overview",) if changed else ()))
    node.health, node.health_reason, node.health_causes = found.state, found.reason, fields["health_causes"]


def _tell(node: Node, found: Condition, now: datetime) -> None:
    text = f"From {node.health} to {found.state}." + (f" {found.reason}" if found.reason else "")
    worse = found.state is NodeHealth.UNREACHABLE
    states = {"from": str(node.health), "to": str(found.state)}
    node_events.record(node, Kind.HEALTH, text, at=now, worse=worse, **states)
