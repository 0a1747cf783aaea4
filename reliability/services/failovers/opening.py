"""How does a recovery come to be: for an incident, or in the place of one that cannot answer what is known now?"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from reliability import conf
from reliability.domain.budget import Verdict
from reliability.domain.failover import Event, Kind, State
from reliability.domain.faults import Action, FaultCode
from reliability.domain.modes import Mode
from reliability.models import Drill, Failover, FailoverEvent, Incident, Job, Node
from reliability.selectors import core, fault_codes, precision, standing
from reliability.services import clock, dispatch
from reliability.services.failovers import budget, effects, fitness, holding, proposals, spoilt
from reliability.services.failovers.moves import AUTOMATION, Outcome, move

Refused = list[dict[str, Any]]
NOT_FENCED_YET = (State.AWAITING_APPROVAL, State.FENCING, State.FENCE_UNCONFIRMED)
"""States in which a node may still confirm that it stopped."""


def open_for(incident: Incident, job: Job, *, refused: Sequence[Mapping[str, Any]] = ()) -> Failover:
    """Write down a new recovery of a job that has none."""
    now = clock.now()
    spoilt.distrust(incident, job)
    proposal = proposals.build(incident, now=now, refused=refused)
    kind = Kind(proposal.shown["kind"])
    manual = precision.mode_of(incident, job, kind=kind) is not Mode.AUTOMATIC
    failover = Failover.objects.create(
        incident=incident,
        job=job,
        kind=kind,
        state_since=now,
        slot=job.slots.filter(node=incident.node).first() if incident.node else None,
        failed_node=incident.node,
        standby=Node.objects.filter(name=proposal.standby).first(),
        refused_standbys=list(refused),
        from_epoch=job.epoch,
        to_epoch=job.epoch + 1,
        restore_epoch=proposal.restore.snapshot.epoch if proposal.restore else None,
        restore_step=proposal.restore.snapshot.step if proposal.restore else None,
        fault_step=core.newest_step_reached(job),
        progress_step=core.newest_complete_step(job),
        proposal=proposal.shown,
        digest=proposal.digest,
        expires_at=now + timedelta(seconds=conf.cluster_policy().approval_ttl_s) if manual else None,
        fault_at=_fault_at(incident, now),
        created_at=now,
    )
    _announce(failover, manual)
    return failover


def _announce(failover: Failover, manual: bool) -> None:
    FailoverEvent.objects.create(
        failover=failover,
        at=failover.created_at,
        event="proposed",
        target=State.AWAITING_APPROVAL,
        sentence="Proposed: this is what would be done.",
        actor=AUTOMATION,
    )
    Job.objects.filter(pk=failover.job_id).update(
        state=Job.State.WAITING if manual else Job.State.RECOVERING, state_reason=failover.incident.summary
    )
    _link_drill(failover)
    dispatch.changed("overview", f"job:{failover.job_id}", f"failover:{failover.pk}")


def _fault_at(incident: Incident, now: datetime) -> datetime:
    """The earliest sign: the first finding, or for a lost node the last that was heard of it.

    A link can be down for hours before training stops because of it: with other signs, that is none. Nor is what was
    only observed, as trouble with a copy, unless it is a consequence or an end that nobody can explain.
    """
    table = fault_codes.table()
    lasting = set(standing.lasting(table))
    rows = list(incident.findings.exclude(action=Action.OBSERVE, code="agent-silent"))
    stopped = [each for each in rows if each.code not in lasting]
    told = [each for each in stopped if each.action != Action.OBSERVE or _is_consequence(table.lookup(each.code))]
    signs = [each.found_at for each in told or stopped or rows]
    if incident.code == "node-lost" and incident.node and incident.node.last_seen_at:
        signs.append(incident.node.last_seen_at)
    return min(signs, default=now)


def _is_consequence(row: FaultCode) -> bool:
    return row.follow_up or row.unexplained


def _link_drill(failover: Failover) -> None:
    """A fault on the node of a running drill is that drill's."""
    drill = Drill.objects.filter(job=failover.job, state=Drill.State.RUNNING, failover=None).order_by("-id").first()
    if drill is not None and (failover.failed_node_id in (None, drill.node_id)):
        Drill.objects.filter(pk=drill.pk).update(failover=failover)


def replace(failover: Failover, incident: Incident, job: Job, reason: str) -> Failover:
    """End an open recovery and open the one that answers what is known now.

    The new one knows which nodes were set aside, which lost their slot already, and which did not confirm their end.
    """
    carried = _carried(failover)
    spoilt.distrust(incident, job)
    fresh = proposals.build(incident, now=clock.now(), refused=carried)
    changed = proposals.difference(failover, fresh.shown)
    move(failover, Outcome(Event.SUPERSEDED, {"reason": reason, "changed": changed}))
    successor = open_for(incident, job, refused=carried)
    Failover.objects.filter(pk=failover.pk).update(superseded_by=successor)
    successor.fault_at = min(failover.fault_at, successor.fault_at)
    if failover.proposal.get("budget"):
        successor.proposal = {**successor.proposal, "budget": failover.proposal["budget"]}
    successor.save(update_fields=["fault_at", "proposal"])
    Drill.objects.filter(failover=failover, state=Drill.State.RUNNING).update(failover=successor)
    if not _ends_here(failover, successor, job, incident):
        dispatch.task("controller.advance", successor.pk)
    return successor


def _ends_here(failover: Failover, successor: Failover, job: Job, incident: Incident) -> bool:
    """Give up a request that turned into a restart in place for which nothing is left, and return whether that was so.

    The budget is that of automation: where a person decides anyway, the request shows that it is used up.
    """
    if successor.kind != Kind.RESTART_IN_PLACE or failover.kind == Kind.RESTART_IN_PLACE:
        return False
    decision, end = budget.after(job, incident)
    if decision.verdict is Verdict.NO_PROGRESS:
        holding.no_progress(job, incident, end, decision)
        move(successor, Outcome(Event.GAVE_UP, {"reason": decision.reason, effects.WAITS: True}))
        return True
    if decision.verdict is not Verdict.USED_UP:
        return False
    if budget.asks_a_person(successor):
        budget.show(successor, decision)
        return False
    move(successor, Outcome(Event.GAVE_UP, {"reason": decision.reason}))
    return True


def _carried(failover: Failover) -> Refused:
    """Return the nodes that must not hold a slot in the recovery that follows, each with the reason."""
    carried = {each["node"]: dict(each) for each in failover.refused_standbys}
    for change in failover.moves:
        node = Node.objects.filter(name=change["from"]).first()
        if node is not None and node.name not in carried:
            held = effects.set_aside(failover, node, str(change.get("why", "")))
            carried[node.name] = {"node": node.name, "reason": str(change.get("why", "")), "hold": held.pk}
    told_to_stop = {} if failover.state in NOT_FENCED_YET else fitness.unstopped(failover)
    for name, why in told_to_stop.items():
        if failover.job.slots.filter(node__name=name).exists():
            carried.setdefault(name, {"node": name, "reason": why})
    return list(carried.values())
