"""Which nodes are there, are they heard from, and what are they for?

Liveness is judged by the server's own receive time, and only for time in which ingest listened. A silent node is
unreachable, which is not failed: that takes a second proof from the training itself. Holds are those of `holds`, the
condition of a node that of `node_health`.
"""

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from reliability import conf
from reliability.domain import health
from reliability.domain.health import NodeHealth, NodeRole
from reliability.domain.reports import Registration
from reliability.errors import InvalidInput
from reliability.models import Incident, Node
from reliability.selectors import core, maintenance
from reliability.services import access, dispatch, node_checks, node_events, node_health, orders
from reliability.services.holds import hold, release_hold
from reliability.services.node_events import AUTOMATION, Kind
from reliability.services.node_health import is_silent

__all__ = [
    "AUTOMATION",
    "free",
    "hold",
    "mark_unhealthy",
    "register",
    "release_hold",
    "set_failure_domain",
    "set_role",
    "suspected",
    "sweep",
    "to_standby",
]
SUSPICION_LIMITS = 6
"""After so many silence limits a node is gone for itself, whoever fell silent with it."""


def register(registration: Registration, *, token: str, now: datetime) -> dict[str, Any]:
    """Enroll a node, or take a known one back under a new incarnation; returns the answer for its agent.

    Raises TokenRefused, TokenOfAnotherNode, NameTaken.
    """
    with transaction.atomic():
        known = Node.objects.select_for_update(no_key=True).filter(name=registration.name).first()
        joining = access.is_join_token(token)
        if joining:
            _check_name_free(known, now)
            _check_same_machine(known, registration)
        else:
            access.sender(registration.name, token)
        node = known or Node(name=registration.name, registered_at=now)
        given = access.new_token() if joining else ""
        if given:
            node.token_hash = access.token_digest(given)
            node.key_generation = secrets.token_hex(8)
        before = dict(node.hardware_ids)
        _take_over(node, registration, now)
        node.save()
        _take_in(node, before, now)
        dispatch.changed("overview", f"node:{node.pk}")
    access.cache.fresh(node.name)
    return _answer(node, given, now)


def _check_name_free(known: Node | None, now: datetime) -> None:
    if known is None or known.last_seen_at is None:
        return
    silent_s = (now - known.last_seen_at).total_seconds()
    if silent_s <= conf.cluster_policy().silence_s:
        raise access.NameTaken(f"Node {known.name} was heard {silent_s:.1f} s ago; its name cannot be taken over.")


def _check_same_machine(known: Node | None, registration: Registration) -> None:
    """A name with work on it goes to no other machine: that one would get the work, its orders and its lease."""
    if known is None or not core.active_slots().filter(node=known).exists():
        return
    other = _differing(known.hardware_ids, registration.hardware_ids)
    if other:
        raise access.NameTaken(
            f"Node {known.name} holds a slot of a job and was another machine: {', '.join(other)} differ.",
            hint="Give the new machine another name, or stop the job or let it move to another node first.",
        )


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the ids that both machines tell and that are not the same."""
    return sorted(name for name, told in before.items() if told and now.get(name) and now[name] != told)


def _take_over(node: Node, registration: Registration, now: datetime) -> None:
    node.address = registration.address
    node.runtime = registration.runtime
    node.incarnation = registration.incarnation
    node.role_hint = registration.role_hint
    node.tier = registration.tier
    node.preemptible = registration.preemptible
    node.failure_domain = registration.failure_domain or node.failure_domain
    node.hardware_ids = dict(registration.hardware_ids)
    node.host_facts = dict(registration.host)
    node.agent_version = registration.version
    node.containers = {
        row["job"]: {"epoch": row["epoch"], "container": row["state"]} for row in registration.containers
    }
    node.last_seen_at = now
    node.role = _role(node)


def _take_in(node: Node, before: Mapping[str, Any], now: datetime) -> None:
    """Say at once in what condition it comes: one with quarantined hardware is never used in between."""
    node_checks.forget(node)
    if before and before != node.hardware_ids:
        changed = sorted({*before, *node.hardware_ids})
        names = [name for name in changed if before.get(name) != node.hardware_ids.get(name)]
        told = f"Its hardware ids changed: {', '.join(names)}."
        node_events.record(node, Kind.HARDWARE, told, actor=node.name, at=now, before=dict(before))
    node_health.refresh(node, now=now)


def _role(node: Node) -> str:
    if node.pk and core.active_slots().filter(node=node).exists():
        return NodeRole.TRAINING
    held = bool(node.pk) and core.active_holds().filter(node=node).exists()
    return NodeRole.STANDBY if held else node.role_hint


def _answer(node: Node, token: str, now: datetime) -> dict[str, Any]:
    policy = conf.cluster_policy()
    answer = {
        "node": node.name,
        "order_key": orders.order_key(node),
        "queue": f"node.{node.name}",
        "broker_url": settings.AGENT_BROKER_URL,
        "heartbeat_s": policy.heartbeat_s,
        "lease_s": policy.lease_s,
        "silence_s": policy.silence_s,
        "server_time": now.timestamp(),
    }
    return {**answer, "token": token} if token else answer


def set_failure_domain(node: Node, domain: str) -> None:
    """Say what fails together with a node; '' for nothing known. Raises InvalidInput.

    An agent that names a domain itself does so again whenever it registers.
    """
    domain = domain.strip()
    if len(domain) > 80 or not domain.isprintable():
        raise InvalidInput("domain", f"{domain[:80]!r} cannot be used", hint="At most 80 letters, as in rack-7.")
    Node.objects.filter(pk=node.pk).update(failure_domain=domain)
    dispatch.changed("overview", f"node:{node.pk}")


def mark_unhealthy(node: Node, incident: Incident) -> None:
    """Note at once that an incident calls a node bad, and quarantine its hardware where that is the cause."""
    node_health.blame(node, incident)
    dispatch.changed("overview", f"node:{node.pk}")


def sweep(now: datetime) -> list[Node]:
    """Mark who is not heard any more and who is heard again; returns the nodes that are silent.

    Returns nothing, and blames nobody, when ingest did not listen. Whether anything may be moved because of the
    silence is another question; see `suspected`.
    """
    since = core.listening_since(now)
    if since is None:
        return []
    policy = conf.cluster_policy()
    nodes = list(Node.objects.exclude(last_seen_at=None))
    silent = [node for node in nodes if is_silent(node, now, since, policy.silence_s)]
    node_health.derive_all(nodes, silent={node.pk for node in silent}, now=now, since=since)
    return silent


def suspected(now: datetime, since: datetime) -> int:
    """Return how many nodes fell silent at once when our own side is likelier to blame than they; else 0.

    Only a silence that began lately says so: nodes that are held back, bad, long gone or away as planned do not count,
    so that the suspicion ends after SUSPICION_LIMITS silence limits. Half a limit makes a node late, because nodes that
    fall silent together cross the limit one after the other. While nobody at all is heard it lasts: nothing is known
    then.
    """
    limit_s = conf.cluster_policy().silence_s
    planned = maintenance.current(now)
    nodes = [node for node in Node.objects.exclude(last_seen_at=None) if node.pk not in planned]
    silent = [node for node in nodes if is_silent(node, now, since, limit_s)]
    if len(silent) == len(nodes) > 1:
        return len(silent)
    held = set(core.active_holds().values_list("node_id", flat=True))
    usable = [node for node in nodes if node.health != NodeHealth.UNHEALTHY and node.pk not in held]
    lately = [node for node in usable if not is_silent(node, now, since, SUSPICION_LIMITS * limit_s)]
    late = sum(is_silent(node, now, since, limit_s / 2) for node in lately)
    begun = any(is_silent(node, now, since, limit_s) for node in lately)
    return late if begun and health.control_plane_suspected(silent=late, total=len(lately)) else 0


def set_role(node: int, role: str, *, why: str = "", at: datetime | None = None) -> None:
    """Note what a node is from now on, by its primary key."""
    with transaction.atomic():
        if Node.objects.filter(pk=node).exclude(role=role).update(role=role):
            told = f"It is a {role} node now." + (f" {why}" if why else "")
            node_events.record(Node(pk=node), Kind.ROLE, told, at=at, role=str(role))


def to_standby(node: Node) -> None:
    """Note that a node holds no slot any more."""
    set_role(node.pk, NodeRole.STANDBY)


def free(node: Node) -> None:
    """Give a node back to what it is for when no job uses it."""
    held = core.active_holds().filter(node=node).exists()
    set_role(node.pk, NodeRole.STANDBY if held else node.role_hint)
