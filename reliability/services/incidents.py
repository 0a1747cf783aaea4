"""What do the findings of a job come to, and what is done about it?

One open incident per job. Every new finding is judged together with those before it; class and action only go up.
The decision is repeated by every reconciliation until it is made, so nothing hangs on one message.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Min, Q

from reliability import conf
from reliability.domain import faults
from reliability.domain.failover import Kind, State
from reliability.domain.faults import STRENGTH, Action, Judgement
from reliability.domain.faults.findings import LONGEST_EVIDENCE, PRINTED
from reliability.domain.faults.words import Value
from reliability.domain.health import NodeHealth
from reliability.domain.modes import Mode
from reliability.errors import DomainError
from reliability.models import Failover, Finding, Incident, Job, Node, Report
from reliability.selectors import core, fault_codes, fault_context, maintenance, standing
from reliability.services import belonging, clock, decisions, dispatch, failovers, incident_log, many_nodes, nodes
from reliability.services.belonging import unjudged
from reliability.services.failovers import fitness
from reliability.services.incident_locks import locked

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
    fields: Mapping[str, Value] | None = None,
    source: str = "",
) -> Finding:
    """Keep one observation as the fault-code table judges it. With a `key` it is kept once."""
    row, at = fault_codes.table().lookup(code), report.received_at if report else clock.now()
    values: dict[str, Any] = {
        "node": node,
        "job": job,
        "epoch": epoch,
        "rank": rank,
        "code": code[:64],
        "fault_class": row.fault_class,
        "action": Action.OBSERVE if source == PRINTED else row.action,  # where it explains an end, the judge says so
        "severity": row.severity,
        "evidence": evidence[:LONGEST_EVIDENCE],
        "count": count,
        "fields": dict(fields or {}),
        "source": source,
        "report": report,
        "found_at": at,
        "last_at": at,
        "agent_at": report.agent_at if report else None,
    }
    if key is None:
        return Finding.objects.create(**values)
    return Finding.objects.get_or_create(key=key[:200], defaults=values)[0]


def judge(job_id: int) -> Incident | None:
    """Judge the findings of a job's current attempt and propose what they call for. Returns the open incident.

    A new incident is kept in a transaction of its own: it is to be seen at once, and what follows from it takes several
    times as long. One that stands is raised and answered in one, lest a recovery ends and closes it in between.
    """
    incident, judgement = _judged(job_id)
    if incident is None or not incident.to_answer:
        return incident
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
        incident.refresh_from_db()
        if incident.closed_at is None and job.state not in Job.TERMINAL and incident.to_answer:
            _answer(job, incident, judgement)
    return incident


def _judged(job_id: int) -> tuple[Incident | None, Judgement | None]:
    """Judge, keep what is judged, and answer what stood before. Returns the open incident and what was found."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
        belonging.settle_old(job)
        belonging.mute_planned(unjudged().filter(job=job))
        if job.state in Job.TERMINAL:
            return None, None
        belonging.give_away(job)
        incident = core.incidents_of(job).filter(closed_at=None).order_by("-id").first()
        findings = _findings(job, incident)
        judgement = _judgement(job, findings)
        if judgement is None or judgement.undecided or (incident and not _news(findings, incident)):
            if incident is not None and (incident.to_answer or incident.waits_until is not None):
                _answer(job, incident, judgement)
            return incident, judgement
        acting, shadows = decisions.split(judgement, findings, partial(_judgement, job))
        if acting is None:
            return incident, None
        stood = incident is not None
        incident = _kept(job, incident, acting, _due(findings))
        decisions.observe(job, incident, shadows)
        if stood:
            _answer(job, incident, acting)
        return incident, acting


def _findings(job: Job, incident: Incident | None) -> list[Finding]:
    awaited = standing.awaited_codes(fault_codes.table())
    rows = unjudged().filter(Q(epoch=job.epoch) | Q(code__in=awaited), job=job)
    if incident is not None:
        rows = rows | Finding.objects.filter(incident=incident)
    return list(rows.select_related("node", "job").order_by("id"))


def _news(findings: Sequence[Finding], incident: Incident) -> bool:
    return any(finding.incident_id != incident.pk for finding in _due(findings))


def _due(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that can be decided on: what is awaited is judged for itself once it stood long enough.

    Else what is decided first, as a restart in place, would take it along, and nothing would ever come of it.
    """
    matcher = fault_codes.matcher()
    if not {each.code for each in findings} & set(standing.awaited_codes(matcher.table)):
        return list(findings)
    found = [fault_context.found(each, matcher) for each in findings]
    awaited = faults.awaited(found, matcher.table, now=clock.now().timestamp())
    return [each for each in findings if each.pk not in awaited or each.incident_id is not None]


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
    """Open or raise the incident, and take the findings in. The root may be what was found long before and lasts."""
    rows = Finding.objects.select_related("node")
    root = rows.filter(pk=judgement.root.order).first() if judgement.root else None
    if incident is None:
        incident = Incident(job=job, epoch=job.epoch, opened_at=clock.now())
    before = (incident.action, incident.fault_class) if incident.pk else None
    stronger = before is None or STRENGTH[judgement.action] >= STRENGTH[Action(incident.action)]
    if stronger and not many_nodes.outranked(incident, judgement):
        _raise_to(incident, judgement, root)
    held = many_nodes.mark(incident, judgement)
    incident.to_answer = True
    incident.save()
    new = [each.pk for each in findings if each.incident_id != incident.pk]
    Finding.objects.filter(pk__in=new).update(incident=incident)
    _tell_rise(incident, before)
    if held:
        many_nodes.note_held(incident)
    dispatch.changed("overview", f"job:{job.pk}", f"incident:{incident.pk}")
    return incident


def _tell_rise(incident: Incident, before: tuple[str, str] | None) -> None:
    now = (incident.action, incident.fault_class)
    if before is None or tuple(map(str, before)) == tuple(map(str, now)):
        return
    was, became = (f"{action} ({fault_class})".replace("_", " ") for action, fault_class in (before, now))
    incident_log.write(incident, incident_log.Kind.RAISED, f"From {was} to {became}: {incident.summary}")


def _raise_to(incident: Incident, judgement: Judgement, root: Finding | None) -> None:
    incident.fault_class, incident.action = judgement.fault_class, judgement.action
    incident.reasons = list(judgement.reasons)
    if root is not None:
        incident.node, incident.code = root.node, root.code
        incident.summary = f"{fault_codes.table().lookup(root.code).meaning} ({root.code} on {root.node.name})"
    else:
        incident.summary = judgement.reasons[0] if judgement.reasons else "Only consequences are known."


def _answer(job: Job, incident: Incident, judgement: Judgement | None) -> None:
    """Do what an incident calls for, under its job's lock. Done twice it is done once."""
    _act(job, incident, judgement)
    incident.to_answer = False
    incident.save(update_fields=["to_answer"])


def _act(job: Job, incident: Incident, judgement: Judgement | None) -> None:
    action = many_nodes.action_of(incident)
    mode = Mode(decisions.keep(incident, action=action).mode) if action is not Action.OBSERVE else None
    if mode is Mode.SHADOW:
        return
    bad = fitness.condemned(incident)
    if bad is not None and mode is Mode.AUTOMATIC:  # otherwise whoever approves the recovery says so
        nodes.mark_unhealthy(bad, incident)
    standing = core.open_failover(job)
    if standing is not None:
        many_nodes.take_back(standing, incident, job) if incident.held_back else _join(standing, incident)
    elif action is Action.HOLD:
        failovers.hold(incident, same_step=judgement is not None and judgement.same_step)
    elif action in (Action.RESTART_IN_PLACE, Action.FAILOVER) and not _waits(job, incident):
        failovers.propose(incident)


def _waits(job: Job, incident: Incident) -> bool:
    """Return whether the recovery waits for a node of the job that is away as planned, and tell of it.

    Its slot stays with it. To go on without the node, a person ends its planned time.
    """
    now = clock.now()
    placed = [slot.node for slot in core.slots_of(job) if slot.node]
    away = [node for node in placed if node.health == NodeHealth.UNREACHABLE]
    planned = maintenance.current(now, away) if away else {}
    until = {node.name: window.ends_at for node in away for window in planned.get(node.pk, ()) if window.stay}
    incident.waits_until = max(until.values(), default=None)
    incident.save(update_fields=["waits_until"])
    if not until:
        return False
    names = ", ".join(sorted(until))
    told = (
        f"The job stands still until {names} is back: in planned maintenance until {incident.waits_until:%H:%M} UTC. "
        "To go on without it, end the maintenance."
    )
    incident_log.write_once(incident, incident_log.Kind.WAITING, told)
    Job.objects.filter(pk=job.pk).exclude(state_reason=told).update(state_reason=told)
    return True


def _join(standing: Failover, incident: Incident) -> None:
    """A recovery is open already: replace it only where it cannot answer what was found now."""
    if many_nodes.action_of(incident) is not Action.FAILOVER:
        return
    worse = standing.kind == Kind.RESTART_IN_PLACE
    answering = standing.state in (*MERGING, State.AWAITING_APPROVAL)
    if worse or (not answering and _hit_again(standing, incident)):
        failovers.supersede(standing, incident)


def _hit_again(standing: Failover, incident: Incident) -> bool:
    """Return whether a node that takes part in the new attempt must be replaced: one that lost its slot was."""
    part = standing.job.slots.exclude(node=None).values("node_id")
    return fitness.moving(incident).filter(epoch=standing.to_epoch, node__in=part).exists()


def undecided() -> list[int]:
    """Return jobs with findings that nobody has judged yet, with an incident to answer, and that wait for a node."""
    rows = unjudged().exclude(job=None).values("job_id").annotate(first=Min("id")).order_by("first")
    waiting = Incident.objects.filter(~Q(waits_until=None) | Q(to_answer=True), closed_at=None)
    waiting = waiting.exclude(job=None).exclude(job__state__in=Job.TERMINAL)
    return list(dict.fromkeys([*rows.values_list("job_id", flat=True), *waiting.values_list("job_id", flat=True)]))


def undecided_nodes() -> list[int]:
    """Return nodes with findings outside any job that nobody has judged yet."""
    return list(unjudged().filter(job=None).values_list("node_id", flat=True).distinct())


def release_of_job(incident: Incident, *, by: str, note: str) -> None:
    """Do what a held-back incident of a job calls for after all. Raises DomainError when nothing is held back."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(incidents=incident)
        incident = locked(incident)
        many_nodes.released(incident, by=by, note=note)
        if job.state in Job.TERMINAL:
            raise DomainError(f"Job {job.name} is over.", hint="Close the incident.")
        for node in Node.objects.filter(name__in=incident.reach.get("nodes", ())).order_by("name"):
            nodes.mark_unhealthy(node, incident)
        _answer(job, incident, None)
