"""Which nodes of a job cannot keep their slot, and why?"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from reliability.domain.failover import Kind
from reliability.domain.faults import Action, FaultClass
from reliability.domain.health import NodeHealth
from reliability.models import Failover, Finding, Hold, Incident, Job, Node, OrderRecord, Slot
from reliability.selectors import core, fault_context, precision


def condemned(incident: Incident) -> Node | None:
    """Return the node that an incident calls bad hardware; not one that is only lost, which its silence tells."""
    moves = incident.action == Action.FAILOVER and not incident.held_back and incident.code != "node-lost"
    return incident.node if moves and incident.fault_class == FaultClass.HARDWARE else None


def unfit_slots(
    job: Job,
    *,
    incident: Incident,
    kind: str,
    refused: Sequence[Mapping[str, Any]] = (),
    failover: Failover | None = None,
) -> list[tuple[Slot, str]]:
    """Return the slots that need another node, with the reason in words, in slot order."""
    accused = _accused(incident) if kind == Kind.FAILOVER else {}
    turned_down = {str(each["node"]): str(each.get("reason", "")) for each in refused}
    holds = {hold.node_id: hold for hold in core.active_holds()}
    stuck = unstopped(failover) if failover else {}
    found = []
    for slot in core.slots_of(job):
        node = slot.node
        why = "It has no node." if node is None else _why(node, accused, turned_down, holds, stuck)
        if why:
            found.append((slot, why))
    return found


def _why(
    node: Node,
    accused: Mapping[str, str],
    turned_down: Mapping[str, str],
    holds: Mapping[int, Hold],
    stuck: Mapping[str, str],
) -> str:
    """Return why a node cannot keep its slot, '' when it can."""
    known = turned_down.get(node.name) or accused.get(node.name) or stuck.get(node.name)
    if known:
        return known
    if node.health in (NodeHealth.UNREACHABLE, NodeHealth.UNHEALTHY):
        return node.health_reason or f"It is {node.health}."
    hold = holds.get(node.pk)
    return f"Held by {hold.owner}: {hold.reason}" if hold else ""


def kind_for(incident: Incident, job: Job, *, refused: Sequence[Mapping[str, Any]] = ()) -> Kind:
    """Return what an incident calls for now: a restart in place never moves a slot, whatever the reason for a move."""
    if incident.action == Action.FAILOVER and not incident.held_back:
        return Kind.FAILOVER
    moves = unfit_slots(job, incident=incident, kind=Kind.RESTART_IN_PLACE, refused=refused)
    return Kind.FAILOVER if moves else Kind.RESTART_IN_PLACE


def moving(incident: Incident) -> QuerySet[Finding]:
    """Return the findings of an incident that call for another node.

    Not those of what many nodes showed at once, nor of a class for which the policy wants something else.
    """
    found = incident.findings.filter(action=Action.FAILOVER)
    if incident.released_at is None:
        found = found.exclude(code__in=incident.reach.get("codes", ()))
    actions = fault_context.class_actions(incident.job) if incident.job else {}
    return found.exclude(fault_class__in=[name for name, action in actions.items() if action != Action.FAILOVER])


def _accused(incident: Incident) -> dict[str, str]:
    """Nodes that a finding of this incident calls to be replaced."""
    found = moving(incident).select_related("node").order_by("-id")
    observed = precision.shadowed_codes((row.code, precision.group_of(row.node)) for row in found)
    observed -= {(incident.code, precision.group_of(incident.node))}  # what a person has done by hand is done
    rows = [row for row in found if (row.code, precision.group_of(row.node)) not in observed]
    named = {row.node.name: f"{row.code}: {row.evidence}"[:300].rstrip(": ") for row in rows}
    if incident.node and incident.action == Action.FAILOVER:
        named.setdefault(incident.node.name, incident.summary)
    return named


def unstopped(failover: Failover) -> dict[str, str]:
    """Return the nodes that were told to stop the old attempt in this recovery and did not say that they had."""
    told = OrderRecord.objects.filter(failover=failover, kind="stop").select_related("node")
    names = {order.node.name for order in told}
    stopped = {order.node.name for order in told if order.state == OrderRecord.State.DONE}
    return dict.fromkeys(names - stopped, "It did not confirm that the old attempt ended.")
