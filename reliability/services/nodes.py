"""Which nodes are there, are they heard from, and what holds one back?

Liveness is judged by the server's own receive time, and only for time in which ingest listened. A silent node is
unreachable, which is not failed: that takes a second proof from the training itself.
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
from reliability.models import Hold, Node
from reliability.selectors import core
from reliability.services import access, clock, dispatch, orders

AUTOMATION = "automation"
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
        _take_over(node, registration, now)
        node.save()
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
    if node.health in (NodeHealth.UNKNOWN, NodeHealth.UNREACHABLE):
        node.health, node.health_reason = NodeHealth.HEALTHY, ""
    node.role = _role(node)


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


def hold(node: Node, *, owner: str, reason: str) -> Hold:
    """Keep a node from new work until the hold is released; the same owner and reason hold once."""
    with transaction.atomic():
        standing = core.active_holds().filter(node=node, owner=owner, reason=reason).first()
        if standing is not None:
            return standing
        made = Hold.objects.create(node=node, owner=owner, reason=reason, created_at=clock.now())
        dispatch.changed("overview", f"node:{node.pk}")
    return made


def release_hold(hold: Hold, *, by: str) -> None:
    """Lift a hold and, when it was the last, the bad health that came with it."""
    with transaction.atomic():
        lifted = Hold.objects.filter(pk=hold.pk, released_at=None).update(released_at=clock.now(), released_by=by)
        node = Node.objects.select_for_update(no_key=True).get(pk=hold.node_id)
        if lifted and node.health == NodeHealth.UNHEALTHY and not core.active_holds().filter(node=node).exists():
            # The next sweep says whether it is heard; nothing is known until then.
            Node.objects.filter(pk=node.pk).update(health=NodeHealth.UNKNOWN, health_reason="")
        dispatch.changed("overview", f"node:{node.pk}")


def mark_unhealthy(node: Node, *, reason: str) -> None:
    """Note that a node must not be used, and why."""
    Node.objects.filter(pk=node.pk).update(health=NodeHealth.UNHEALTHY, health_reason=reason)
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
    silent = [node for node in nodes if _is_silent(node, now, since, policy.silence_s)]
    missing = {node.pk for node in silent}
    for node in nodes:
        _note_liveness(node, silent=node.pk in missing, now=now)
    return silent


def _is_silent(node: Node, now: datetime, since: datetime, limit_s: float) -> bool:
    return health.liveness(
        now=now.timestamp(),
        last_seen=node.last_seen_at.timestamp() if node.last_seen_at else None,
        listening_since=since.timestamp(),
        silence_s=limit_s,
    )


def suspected(now: datetime, since: datetime) -> int:
    """Return how many nodes fell silent at once when our own side is likelier to blame than they; else 0.

    Only a silence that began lately says so: nodes that are held back, bad, or long gone do not count, so that the
    suspicion ends after SUSPICION_LIMITS silence limits. Half a limit makes a node late, because nodes that fall
    silent together cross the limit one after the other. While nobody at all is heard it lasts: nothing is known then.
    """
    limit_s = conf.cluster_policy().silence_s
    nodes = list(Node.objects.exclude(last_seen_at=None))
    silent = [node for node in nodes if _is_silent(node, now, since, limit_s)]
    if len(silent) == len(nodes) > 1:
        return len(silent)
    held = set(core.active_holds().values_list("node_id", flat=True))
    usable = [node for node in nodes if node.health != NodeHealth.UNHEALTHY and node.pk not in held]
    lately = [node for node in usable if not _is_silent(node, now, since, SUSPICION_LIMITS * limit_s)]
    late = sum(_is_silent(node, now, since, limit_s / 2) for node in lately)
    begun = any(_is_silent(node, now, since, limit_s) for node in lately)
    return late if begun and health.control_plane_suspected(silent=late, total=len(lately)) else 0


def _note_liveness(node: Node, *, silent: bool, now: datetime) -> None:
    if silent and node.health not in (NodeHealth.UNREACHABLE, NodeHealth.UNHEALTHY):
        reason = f"Nothing heard since {node.last_seen_at:%H:%M:%S} UTC; that alone is no failure."
        _set_health(node, NodeHealth.UNREACHABLE, reason)
    elif not silent and node.health in (NodeHealth.UNREACHABLE, NodeHealth.UNKNOWN):
        _set_health(node, NodeHealth.HEALTHY, "")


def _set_health(node: Node, state: NodeHealth, reason: str) -> None:
    with transaction.atomic():
        changed = Node.objects.filter(pk=node.pk, health=node.health).update(health=state, health_reason=reason)
        if changed:
            dispatch.changed("overview", f"node:{node.pk}")
    node.health, node.health_reason = state, reason


def to_standby(node: Node) -> None:
    """Note that a node holds no slot any more."""
    Node.objects.filter(pk=node.pk).update(role=NodeRole.STANDBY)


def free(node: Node) -> None:
    """Give a node back to what it is for when no job uses it."""
    held = core.active_holds().filter(node=node).exists()
    Node.objects.filter(pk=node.pk).update(role=NodeRole.STANDBY if held else node.role_hint)
