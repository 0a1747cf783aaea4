"""VALIDATING and WAITING_FOR_STANDBY: which node takes each slot that needs one, and did it pass its checks?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from reliability.domain.failover import Event, Kind
from reliability.domain.health import NodeRole
from reliability.domain.orders import OrderKind
from reliability.domain.standby import Ranked, Verdict
from reliability.models import Failover, Hold, Node, OrderRecord, Slot, Validation
from reliability.selectors import core
from reliability.services import launch, nodes, orders, validations
from reliability.services.failovers import fitness, preempting, proposals
from reliability.services.failovers.moves import Outcome


def needed(failover: Failover) -> list[tuple[Slot, str]]:
    """Return the slots that need another node now."""
    return fitness.unfit_slots(
        failover.job,
        incident=failover.incident,
        kind=Kind(failover.kind),
        refused=failover.refused_standbys,
        failover=failover,
    )


def validating(failover: Failover, now: datetime) -> Outcome | None:
    """Find a fit standby for every slot that needs one."""
    pardon(failover)
    refused = _just_refused(failover)
    if refused is not None:
        return refused
    unfit = needed(failover)
    if not unfit:
        return Outcome(Event.STANDBY_PASSED, {"moves": failover.moves})
    if failover.kind == Kind.RESTART_IN_PLACE:
        told = "; ".join(f"slot {slot.index}: {why}" for slot, why in unfit)
        return Outcome(Event.SUPERSEDED, {"reason": f"A restart in place moves no slot, and one must move ({told})."})
    ranked = proposals.candidates(failover.job, now=now, refused=failover.refused_standbys)
    chosen = preempting.allowed(failover, ranked)[: len(unfit)]
    if len(chosen) < len(unfit):
        return Outcome(Event.NO_STANDBY, _missing(unfit, chosen, ranked))
    if any(each.preempts for each in chosen):
        return preempting.preempt(failover, chosen)
    return _use(failover, unfit, [Node.objects.get(name=each.candidate.node) for each in chosen], now)


def _use(
    failover: Failover, unfit: Sequence[tuple[Slot, str]], takers: Sequence[Node], now: datetime
) -> Outcome | None:
    """Take the nodes once each is free of other work and passed its checks."""
    releases = preempting.not_free(failover, takers, now)
    hopeless = preempting.hopeless(failover, releases, now)
    if hopeless is not None:
        node, reason = hopeless
        refuse(failover, node, reason)
        return Outcome(Event.STANDBY_REFUSED, {"node": node, "reason": reason})
    if releases or not _all_fit(failover, takers) or not _take(failover, unfit, takers):
        return None
    return Outcome(Event.STANDBY_PASSED, {"moves": failover.moves})


def waiting(failover: Failover, now: datetime) -> Outcome | None:
    """Go on as soon as there are enough standbys, or when none is needed any more."""
    pardon(failover)
    unfit = needed(failover)
    found = proposals.candidates(failover.job, now=now, refused=failover.refused_standbys)
    ranked = preempting.allowed(failover, found)
    if len(ranked) < len(unfit):
        return None
    return Outcome(Event.STANDBY_FOUND, {"standbys": [each.candidate.node for each in ranked[: len(unfit)]]})


def refuse(failover: Failover, node: str, reason: str) -> None:
    """Set a node aside for the rest of this recovery."""
    if any(each["node"] == node for each in failover.refused_standbys):
        return
    told = f"Did not take over in failover {failover.pk}: {reason}"
    held = nodes.hold(Node.objects.get(name=node), owner=nodes.AUTOMATION, reason=told)
    failover.refused_standbys = [*failover.refused_standbys, {"node": node, "reason": reason, "hold": held.pk}]
    failover.save(update_fields=["refused_standbys"])


def pardon(failover: Failover) -> None:
    """A node whose hold a person released may be tried again, from the start: its old answers do not count."""
    holds = [each["hold"] for each in failover.refused_standbys if each.get("hold")]
    released = Hold.objects.filter(pk__in=holds).exclude(released_at=None).select_related("node")
    if not released:
        return
    lifted = {hold.pk for hold in released}
    failover.refused_standbys = [each for each in failover.refused_standbys if each.get("hold") not in lifted]
    failover.save(update_fields=["refused_standbys"])
    for hold in released:
        launch.container_gone(failover.job, hold.node)
        told = OrderRecord.objects.filter(failover=failover, node=hold.node, kind=OrderKind.RESTORE)
        orders.forget(told)


def _just_refused(failover: Failover) -> Outcome | None:
    """Tell of a check made for this recovery that did not pass."""
    known = {each["node"] for each in failover.refused_standbys}
    ended = Validation.objects.filter(failover=failover).exclude(ended_at=None).exclude(verdict=Verdict.PASS)
    for row in ended.select_related("node").order_by("id"):
        forgiven = Hold.objects.filter(node=row.node, owner=nodes.AUTOMATION, released_at__gte=row.ended_at).exists()
        if row.node.name not in known and not forgiven:
            refuse(failover, row.node.name, row.reason)
            return Outcome(Event.STANDBY_REFUSED, {"node": row.node.name, "reason": row.reason})
    return None


def _missing(unfit: Sequence[tuple[Slot, str]], chosen: Sequence[Ranked], ranked: Sequence[Ranked]) -> dict[str, Any]:
    return {
        "needed": len(unfit),
        "missing": len(unfit) - len(chosen),
        "candidates": {each.candidate.node: list(each.reasons) for each in ranked},
    }


def _all_fit(failover: Failover, takers: Sequence[Node]) -> bool:
    """Have every chosen node checked; those that passed lately are not checked again."""
    unchecked = [node for node in takers if not validations.is_fresh(node, failover=failover)]
    for node in takers:
        launch.prepare(failover.job, node)
    for node in unchecked:
        validations.begin(node, failover=failover)
    return not unchecked


def _take(failover: Failover, unfit: Sequence[tuple[Slot, str]], takers: Sequence[Node]) -> bool:
    """Give the slots to the nodes, unless another job took one a moment ago."""
    names = sorted(node.name for node in takers)
    locked = {node.name: node for node in Node.objects.select_for_update().filter(name__in=names).order_by("name")}
    if core.active_slots().filter(node__in=locked.values()).exists():
        return False
    moves = {move["slot"]: move for move in failover.moves}
    for (slot, why), node in zip(unfit, takers, strict=True):
        before = slot.node.name if slot.node else ""
        first = moves.get(slot.index, {}).get("from", before)
        first_why = moves.get(slot.index, {}).get("why", why)
        moves[slot.index] = {"slot": slot.index, "from": first, "to": node.name, "why": first_why}
        Slot.objects.filter(pk=slot.pk).update(node=node)
        nodes.set_role(node.pk, NodeRole.TRAINING, why=f"It takes slot {slot.index} of job {failover.job.name}.")
        if slot.node:
            nodes.set_role(slot.node.pk, NodeRole.STANDBY, why=f"It lost slot {slot.index} of job {failover.job.name}.")
    failover.moves = [moves[index] for index in sorted(moves)]
    failover.standby = takers[0]
    failover.save(update_fields=["moves", "standby"])
    return True
