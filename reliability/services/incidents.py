"""What do the findings of a job come to, and what is done about it?

One open incident per job. Every new finding is judged together with those before it; class and action only go up.
The decision is repeated by every reconciliation until it is made, so nothing hangs on one message.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min, Q

from reliability import conf
from reliability.domain import faults
from reliability.domain.failover import Kind, State
from reliability.domain.faults import STRENGTH, Action, FaultClass, Judgement
from reliability.models import Failover, Finding, Incident, Job, Node, Report
from reliability.selectors import core, fault_codes, fault_context
from reliability.services import clock, dispatch, failovers, nodes

QUIET_S = 600.0
"""An incident that is only observed is closed after this long without a new finding."""
CLOSED_ELSEWHERE = ("control-plane", "tier-filling")
"""Incidents that stay open until what they tell of is over, however quiet it is."""
MERGING = (State.FENCING, State.FENCE_UNCONFIRMED, State.VALIDATING, State.WAITING_FOR_STANDBY)
"""States that look at every node of the job themselves, so that one more lost node joins the same recovery."""


def note(
    node: Node,
    code: str,
    *,
    job: Job | None,
    epoch: int | None = None,
    rank: int | None = None,
    evidence: str = "",
    key: str | None = None,
    report: Report | None = None,
    count: int = 1,
) -> Finding:
    """Keep one observation as the fault-code table judges it. With a `key` it is kept once."""
    row = fault_codes.table().lookup(code)
    values: dict[str, Any] = {
        "node": node,
        "job": job,
        "epoch": epoch,
        "rank": rank,
        "code": code[:64],
        "fault_class": row.fault_class,
        "action": row.action,
        "severity": row.severity,
        "evidence": evidence[:4000],
        "count": count,
        "report": report,
        "found_at": report.received_at if report else clock.now(),
        "agent_at": report.agent_at if report else None,
    }
    if key is None:
        return Finding.objects.create(**values)
    return Finding.objects.get_or_create(key=key[:200], defaults=values)[0]


def judge(job_id: int) -> Incident | None:
    """Judge the findings of a job's current attempt and propose what they call for. Returns the open incident."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
        _settle_old(job)
        if job.state in Job.TERMINAL:
            return None
        _give_to_their_nodes(job)
        incident = core.incidents_of(job).filter(closed_at=None).order_by("-id").first()
        findings = _findings(job, incident)
        judgement = _judgement(job, findings)
        if judgement is None or judgement.undecided or (incident and not _news(findings, incident)):
            return incident
        incident = _kept(job, incident, judgement, findings)
        _act(job, incident)
        return incident


def _settle_old(job: Job) -> None:
    """Give findings of earlier attempts, or of a job that is over, to the incident they came too late for."""
    late = Finding.objects.filter(job=job, incident=None)
    if job.state not in Job.TERMINAL:
        late = late.filter(Q(epoch__lt=job.epoch) | Q(epoch=None))
    if late.exists():
        late.update(incident=core.incidents_of(job).order_by("-id").first())


def _give_to_their_nodes(job: Job) -> None:
    """What is found of a node without a slot says something of that node; the job's own nodes are none the worse."""
    part = job.slots.exclude(node=None).values("node_id")
    strangers = Finding.objects.filter(job=job, incident=None).exclude(node__in=part)
    strangers.update(job=None, epoch=None, rank=None)


def _findings(job: Job, incident: Incident | None) -> list[Finding]:
    rows = Finding.objects.filter(job=job, incident=None, epoch=job.epoch)
    if incident is not None:
        rows = rows | Finding.objects.filter(incident=incident)
    return list(rows.select_related("node", "job").order_by("id"))


def _news(findings: Sequence[Finding], incident: Incident) -> bool:
    return any(finding.incident_id != incident.pk for finding in findings)


def _judgement(job: Job, findings: Sequence[Finding]) -> Judgement | None:
    matcher = fault_codes.matcher()
    return faults.judge(
        [fault_context.found(finding, matcher) for finding in findings],
        unknown_action=Action(job.unknown_action),
        now=clock.now().timestamp(),
        settle_s=_settle_s(job, findings),
        nodes=job.nodes,
        context=fault_context.of_job(job, findings, matcher),
        table=matcher.table,
    )


def _settle_s(job: Job, findings: Sequence[Finding]) -> float:
    """How long consequences alone wait for their cause: until every node of the job was heard after the first.

    A node that was powered off leaves only its peers' complaints; acting on those would restart the job on a node
    that is about to be found lost. So the silence limit decides while any node has not been heard since.
    """
    table = fault_codes.table()
    consequences = [finding.found_at for finding in findings if table.lookup(finding.code).follow_up]
    if not consequences:
        return 0.0
    policy = conf.cluster_policy()
    first = min(consequences)
    unheard = [
        slot.node
        for slot in core.slots_of(job)
        if slot.node and (slot.node.last_seen_at is None or slot.node.last_seen_at <= first)
    ]
    return policy.silence_s + policy.proof_s + policy.heartbeat_s if unheard else 0.0


def _kept(job: Job, incident: Incident | None, judgement: Judgement, findings: Iterable[Finding]) -> Incident:
    """Open or raise the incident, and take the findings in."""
    root = next((each for each in findings if judgement.root and each.pk == judgement.root.order), None)
    if incident is None:
        incident = Incident(job=job, epoch=job.epoch, opened_at=clock.now())
    if incident.pk is None or STRENGTH[judgement.action] >= STRENGTH[Action(incident.action)]:
        _raise_to(incident, judgement, root)
    incident.save()
    Finding.objects.filter(pk__in=[each.pk for each in findings]).update(incident=incident)
    dispatch.changed("overview", f"job:{job.pk}")
    return incident


def _raise_to(incident: Incident, judgement: Judgement, root: Finding | None) -> None:
    incident.fault_class, incident.action = judgement.fault_class, judgement.action
    incident.reasons = list(judgement.reasons)
    if root is not None:
        incident.node, incident.code = root.node, root.code
        incident.summary = f"{fault_codes.table().lookup(root.code).meaning} ({root.code} on {root.node.name})"
    else:
        incident.summary = judgement.reasons[0] if judgement.reasons else "Only consequences are known."


def _act(job: Job, incident: Incident) -> None:
    action = Action(incident.action)
    if incident.fault_class == FaultClass.HARDWARE and action is Action.FAILOVER and incident.node:
        nodes.mark_unhealthy(incident.node, reason=incident.summary) if _is_bad(incident) else None
    standing = core.open_failover(job)
    if standing is not None:
        _join(standing, incident)
    elif action is Action.HOLD:
        _hold_job(job, incident)
    elif action in (Action.RESTART_IN_PLACE, Action.FAILOVER):
        failovers.propose(incident)


def _is_bad(incident: Incident) -> bool:
    """A lost node is unreachable, which sweep tells; every other hardware finding makes it unhealthy."""
    return incident.code != "node-lost"


def _hold_job(job: Job, incident: Incident) -> None:
    Job.objects.filter(pk=job.pk).update(state=Job.State.WAITING, state_reason=incident.summary)
    dispatch.changed("overview", f"job:{job.pk}")


def _join(standing: Failover, incident: Incident) -> None:
    """A recovery is open already: replace it only where it cannot answer what was found now."""
    if incident.action != Action.FAILOVER:
        return
    worse = standing.kind == Kind.RESTART_IN_PLACE
    answering = standing.state in (*MERGING, State.AWAITING_APPROVAL)
    if worse or (not answering and _hit_again(standing, incident)):
        failovers.supersede(standing, incident)


def _hit_again(standing: Failover, incident: Incident) -> bool:
    """Return whether a node that takes part in the new attempt must be replaced: one that lost its slot was."""
    part = standing.job.slots.exclude(node=None).values("node_id")
    found = incident.findings.filter(epoch=standing.to_epoch, action=Action.FAILOVER)
    return found.filter(node__in=part).exists()


def control_plane(now: datetime, *, silent: int) -> Incident:
    """Open the one incident that says that our own side is the likelier cause of so much silence."""
    standing = Incident.objects.filter(code="control-plane", closed_at=None).first()
    if standing is not None:
        return standing
    incident = Incident.objects.create(
        code="control-plane",
        fault_class=FaultClass.UNKNOWN,
        action=Action.OBSERVE,
        summary=f"{silent} nodes fell silent at once: the control plane or its network is the likelier cause.",
        reasons=["No node is blamed and nothing is moved while most nodes are silent."],
        opened_at=now,
    )
    dispatch.changed("overview")
    return incident


def close_control_plane(now: datetime) -> None:
    """Close that incident when our own side is not suspected any more."""
    closed = Incident.objects.filter(code="control-plane", closed_at=None).update(
        closed_at=now,
        close_reason="Most nodes are heard again, or those that are silent have been so for long.",
    )
    if closed:
        dispatch.changed("overview")


def close_quiet(now: datetime) -> None:
    """Close incidents that were only observed and to which nothing was added for QUIET_S."""
    observed = Incident.objects.filter(closed_at=None, action=Action.OBSERVE).exclude(code__in=CLOSED_ELSEWHERE)
    limit = now - timedelta(seconds=QUIET_S)
    for incident in observed.filter(opened_at__lt=limit):
        if not incident.findings.filter(found_at__gte=limit).exists():
            Incident.objects.filter(pk=incident.pk).update(closed_at=now, close_reason="Nothing new was found.")


def undecided() -> list[int]:
    """Return jobs with findings that nobody has judged yet."""
    rows = Finding.objects.filter(incident=None).exclude(job=None)
    return list(rows.values("job_id").annotate(first=Min("id")).order_by("first").values_list("job_id", flat=True))


def undecided_nodes() -> list[int]:
    """Return nodes with findings outside any job that nobody has judged yet."""
    return list(Finding.objects.filter(incident=None, job=None).values_list("node_id", flat=True).distinct())
