"""What else is known when findings are judged: earlier findings of the nodes, earlier ends of the job, who is where."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from reliability import conf
from reliability.domain import faults
from reliability.domain.failover import Kind
from reliability.domain.faults.conditions import stands
from reliability.domain.faults.findings import PRINTED
from reliability.domain.faults.roots import BLAMING
from reliability.domain.faults.words import Value
from reliability.models import Failover, Finding, Incident, Job, Node, Rank
from reliability.selectors import core, maintenance, standing

LAST_LINE = "Last line: "
TELLING_LINE = "The line that says why: "
SHOWN = 200
HISTORY_ROWS = 300
ATTEMPTS = 20
HELD_BEFORE = timedelta(hours=1)
PATIENCE_S = 15.0
PATIENCE_STEPS = 3.0
"""So many of its own steps, and at least PATIENCE_S, without a new step: then training does not go on."""


def fields_of(code: str, evidence: str, matcher: faults.Matcher) -> Mapping[str, Value]:
    """Return what the line behind a finding carries; nothing when its evidence is no line of that code."""
    told = matcher.find(evidence.rpartition(TELLING_LINE if TELLING_LINE in evidence else LAST_LINE)[2])
    return told.fields if told is not None and told.code == code else {}


def found(finding: Finding, matcher: faults.Matcher) -> faults.Finding:
    """Return a finding as the domain judges it."""
    return faults.Finding(
        code=finding.code,
        node=finding.node.name,
        at=finding.found_at.timestamp(),
        order=finding.pk,
        rank=finding.rank,
        epoch=finding.epoch,
        evidence=_shown(finding.evidence),
        job=finding.job.name if finding.job else "",
        count=finding.count,
        fields=finding.fields or fields_of(finding.code, finding.evidence, matcher),
        printed=finding.source == PRINTED,
    )


def _shown(evidence: str) -> str:
    return evidence if len(evidence) <= SHOWN else f"{evidence[: SHOWN - 2].rstrip()} …"


def history(findings: Sequence[Finding], matcher: faults.Matcher) -> tuple[faults.Finding, ...]:
    """Return earlier findings of the same nodes with those codes whose repetition means something."""
    rules = {each.code: rule for each in findings if (rule := matcher.table.lookup(each.code).repeat) is not None}
    if not rules:
        return ()
    since = min(each.found_at for each in findings) - timedelta(seconds=max(rule.window_s for rule in rules.values()))
    rows = Finding.objects.filter(code__in=rules, node__in={each.node_id for each in findings}, found_at__gte=since)
    earlier = rows.exclude(pk__in=[each.pk for each in findings]).select_related("node", "job").order_by("-id")
    return tuple(found(each, matcher) for each in earlier[:HISTORY_ROWS])


def sightings(findings: Sequence[Finding], moved: Collection[str] = ()) -> tuple[faults.Sighting, ...]:
    """Return where else in the cluster the codes that blame nodes were seen within the window of the radius.

    `moved`: classes whose faults the policy answers with another node, so that they blame one too.
    """
    blaming = {*BLAMING, *moved}
    codes = {each.code for each in findings if each.action == faults.Action.FAILOVER or each.fault_class in blaming}
    if not codes:
        return ()
    window = timedelta(seconds=conf.cluster_policy().radius.window_s)
    instants = [each.found_at for each in findings if each.code in codes]
    near = {"found_at__gte": min(instants) - window, "found_at__lte": max(instants) + window}
    seen = Finding.objects.filter(code__in=codes, **near).exclude(source=PRINTED)
    rows = seen.values("code", "node__name").annotate(at=Max("found_at"))
    return tuple(
        faults.Sighting(code=row["code"], node=row["node__name"], at=row["at"].timestamp()) for row in rows.order_by()
    )


def _held_before(job: Job, findings: Sequence[Finding]) -> frozenset[str]:
    """Return the codes of this job that were held back a short while ago: once more, and a person is asked."""
    since = min(each.found_at for each in findings) - HELD_BEFORE
    rows = Incident.objects.filter(job=job, closed_at__gte=since, released_at=None).exclude(reach={})
    return frozenset(str(reach["code"]) for reach in rows.values_list("reach", flat=True) if "code" in reach)


def class_actions(job: Job) -> dict[str, str]:
    """Return class -> action as the policies of the cluster and the job say, the job's first."""
    return {**conf.cluster_policy().actions, **job.class_actions}


def _suspects_replaced(job: Job, findings: Sequence[Finding], table: faults.Table) -> frozenset[str]:
    """Return the nodes that this job left on a suspicion alone, within the time in which such a one counts."""
    rules = [row.repeat for each in findings if (row := table.lookup(each.code)).repeat and row.repeat.moves_once]
    if not rules:
        return frozenset()
    codes = [row.code for row in table.values() if row.repeat and row.repeat.moves_once]
    since = min(each.found_at for each in findings) - timedelta(seconds=max(rule.window_s for rule in rules if rule))
    moved = Failover.objects.filter(job=job, incident__code__in=codes, kind=Kind.FAILOVER, created_at__gte=since)
    moves: Sequence[Sequence[Mapping[str, Any]]] = list(moved.values_list("moves", flat=True))
    return frozenset(str(move["from"]) for each in moves for move in each)


def conditions(
    findings: Sequence[Finding], nodes: Iterable[int], matcher: faults.Matcher
) -> tuple[faults.Finding, ...]:
    """Return what was found before of these nodes that lasts. Only consequences ask for it: others have their cause."""
    if not any(matcher.table.lookup(each.code).follow_up for each in findings):
        return ()
    known = {each.pk for each in findings}
    rows = standing.of_nodes(nodes, matcher.table, now=max(each.found_at for each in findings))
    return tuple(found(each, matcher) for each in rows if each.pk not in known)


def lasts(incident: Incident, matcher: faults.Matcher, *, now: datetime) -> bool:
    """Return whether a condition that an incident tells of stands and may still explain why training stops."""
    codes = standing.lasting(matcher.table)
    nodes = set(incident.findings.filter(code__in=codes).values_list("node_id", flat=True))
    if not nodes:
        return False
    rows = standing.of_nodes(nodes, matcher.table, now=now)
    known = [found(each, matcher) for each in rows]
    mine = {each.pk for each in rows if each.incident_id == incident.pk and each.code in codes}
    return any(stands(each, known, matcher.table, now=now.timestamp()) for each in known if each.order in mine)


def _around(findings: Sequence[Finding], moved: Collection[str] = ()) -> dict[str, Any]:
    """Return what of the cluster belongs to the context of any findings."""
    if not findings:
        return {}
    seen = sightings(findings, moved)
    return {
        "maintenance": maintenance.of_findings(findings),
        "sightings": seen,
        "cluster_nodes": Node.objects.count() if seen else 0,
        "radius": conf.cluster_policy().radius,
    }


def of_job(job: Job, findings: Sequence[Finding], matcher: faults.Matcher) -> faults.Context:
    """Return the context of a job's findings."""
    slots = core.slots_of(job)
    actions = class_actions(job)
    ranks = list(Rank.objects.filter(job=job, epoch=job.epoch))
    seen = [rank.progress_at.timestamp() for rank in ranks if rank.progress_at is not None]
    return faults.Context(
        ranks_ended=not ranks or any(rank.state in (Rank.State.EXITED, Rank.State.FAILED) for rank in ranks),
        progress_at=min(seen) if len(seen) == job.world_size else None,
        patience_s=max(PATIENCE_S, PATIENCE_STEPS * max((rank.step_s or 0.0 for rank in ranks), default=0.0)),
        history=history(findings, matcher),
        attempts=_attempts(job),
        step=core.newest_step_reached(job),
        ranks=job.world_size,
        rank_nodes=core.placement(job),
        addresses={slot.node.address: slot.node.name for slot in slots if slot.node},
        held_before=_held_before(job, findings) if findings else frozenset(),
        suspects_replaced=_suspects_replaced(job, findings, matcher.table),
        class_actions=actions,
        conditions=conditions(findings, (slot.node_id for slot in slots if slot.node_id), matcher),
        **_around(findings, [name for name, action in actions.items() if action == faults.Action.FAILOVER]),
    )


def of_node(findings: Sequence[Finding], matcher: faults.Matcher) -> faults.Context:
    """Return the context of findings that belong to no job."""
    return faults.Context(history=history(findings, matcher), **_around(findings))


def _attempts(job: Job) -> tuple[faults.Attempt, ...]:
    """Return how earlier attempts of a job ended: the root's code and node, and the newest step that was reached."""
    rows = Failover.objects.filter(job=job, from_epoch__lt=job.epoch, fault_step__isnull=False)
    ends = rows.order_by("-id").values_list("incident__code", "incident__node", "fault_step")[:ATTEMPTS]
    names = dict(Node.objects.filter(pk__in=[node for _, node, _ in ends if node]).values_list("pk", "name"))
    return tuple(
        faults.Attempt(code=code, nodes=frozenset({names[node]}), step=step)
        for code, node, step in ends
        if node in names and step is not None
    )
