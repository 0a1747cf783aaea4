"""What the page of an incident shows: what to do next, its timeline, evidence in pages, and what is related to it.

Bounded whatever the incident holds: findings come in pages, and in the timeline the same code on one node is one line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.paginator import Page, Paginator
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Sum
from django.urls import reverse

from reliability.domain.failover import OPEN, State
from reliability.domain.faults import Action
from reliability.domain.health import hardware
from reliability.domain.modes import Mode
from reliability.models import Failover, FailoverEvent, Finding, Incident, IncidentEvent, Node
from reliability.selectors import fault_codes, quarantined
from reliability.selectors.failover_pages import incident_outputs
from reliability.selectors.job_pages import RankOutput

FINDINGS_A_PAGE = 50
TIMELINE_LINES = 200
RELATED = 10
SAME_NODE = timedelta(days=7)
SAME_CODE = timedelta(hours=1)
STEPS_APART = 1


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the timeline. `until` is set where it stands for several of the same."""

    at: datetime
    kind: str
    text: str
    actor: str = ""
    until: datetime | None = None
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class NextAction:
    """What a person does next, and where."""

    text: str
    link: str = ""
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Related:
    """Incidents that share something with this one, and what."""

    why: str
    incidents: tuple[Incident, ...]


@dataclass(frozen=True, kw_only=True)
class IncidentPage:
    """Everything of an incident's page."""

    incident: Incident
    next: NextAction
    timeline: tuple[Line, ...]
    findings: Page[Finding]
    seen: int
    counted: int
    nodes: tuple[str, ...]
    failovers: tuple[Failover, ...]
    outputs: tuple[RankOutput, ...]
    related: tuple[Related, ...]


def with_text(rows: QuerySet[Incident], text: str) -> QuerySet[Incident]:
    """Keep incidents that have a text in their summary, code, job, node, or in the evidence of a finding."""
    found = Finding.objects.filter(incident=OuterRef("pk"), evidence__icontains=text)
    own = Q(summary__icontains=text) | Q(code__icontains=text) | Q(close_reason__icontains=text)
    named = Q(job__name__icontains=text) | Q(node__name__icontains=text)
    return rows.filter(own | named | Exists(found))


def on_node(rows: QuerySet[Incident], name: str) -> QuerySet[Incident]:
    """Keep incidents of a node, also those of many nodes in which it has a finding."""
    found = Finding.objects.filter(incident=OuterRef("pk"), node__name__icontains=name)
    return rows.filter(Q(node__name__icontains=name) | Exists(found))


def page(incident: Incident, *, number: str | int = 1) -> IncidentPage:
    """Return what the page of an incident shows; `number` is the page of its findings."""
    rows = incident.findings.select_related("node", "job").order_by("pk")
    totals = incident.findings.aggregate(seen=Count("pk"), counted=Sum("count"))
    names = incident.findings.order_by("node__name").values_list("node__name", flat=True).distinct()
    failovers = tuple(incident.failovers.select_related("job", "failed_node", "standby").order_by("pk"))
    return IncidentPage(
        incident=incident,
        next=next_action(incident, failovers),
        timeline=timeline(incident, failovers),
        findings=Paginator(rows, FINDINGS_A_PAGE).get_page(number),
        seen=totals["seen"],
        counted=totals["counted"] or 0,
        nodes=tuple(names[:100]),
        failovers=failovers,
        outputs=incident_outputs(incident),
        related=related(incident, failovers),
    )


def next_action(incident: Incident, failovers: Sequence[Failover]) -> NextAction:
    """Return what a person does next."""
    if incident.closed_at is not None:
        return NextAction(text="Nothing: it is closed.")
    if incident.held_back:
        text = "Look for what these nodes share. If each of them is faulty itself, release it below."
        return NextAction(text=text, link="#release", label="Release or leave it")
    standing = next((each for each in failovers if each.state in OPEN), None)
    if standing is not None:
        return _of_recovery(standing)
    if incident.waits_until is not None:
        text = f"Nothing until {incident.waits_until:%H:%M} UTC: a node of the job is away as planned."
        return NextAction(text=text, link=reverse("maintenance"), label="Planned maintenance")
    if incident.decisions.filter(mode=Mode.SHADOW, by_hand="", verdict="").exists():
        text = "Look at what would have been done: have it done, or say whether it was right."
        return NextAction(text=text, link="#decided", label="To the decision")
    return _of_action(incident)


def _of_recovery(standing: Failover) -> NextAction:
    link = reverse("failover", args=[standing.pk])
    if standing.state == State.AWAITING_APPROVAL:
        return NextAction(text="Decide on the proposed recovery.", link=link, label=f"Recovery {standing.pk}")
    return NextAction(text="Nothing: a recovery is under way.", link=link, label=f"Recovery {standing.pk}")


def _of_action(incident: Incident) -> NextAction:
    if incident.to_answer:
        return NextAction(text="Nothing yet: what follows from it is being worked out.")
    advice = fault_codes.table().lookup(incident.code).advice if incident.code else "More evidence is awaited."
    if incident.action == Action.HOLD and incident.job is not None:
        return NextAction(
            text=f"Say how the job goes on. {advice}", link=reverse("job", args=[incident.job.name]), label="To the job"
        )
    if incident.node is not None:
        return NextAction(text=advice, link=reverse("node", args=[incident.node.name]), label="To the node")
    return NextAction(text=advice)


def timeline(incident: Incident, failovers: Iterable[Failover]) -> tuple[Line, ...]:
    """Return what happened, oldest first."""
    lines = [Line(at=incident.opened_at, kind="opened", text="Incident opened.")]
    lines += _found(incident)
    lines += [
        Line(at=each.at, kind=IncidentEvent.Kind(each.kind).label, text=each.sentence, actor=each.actor)
        for each in incident.events.all()[:TIMELINE_LINES]
    ]
    lines += _recovered(failovers)
    told = any(line.kind == "closed" for line in lines)
    if incident.closed_at is not None and not told:
        lines.append(Line(at=incident.closed_at, kind="closed", text=incident.close_reason or "Closed."))
    return tuple(sorted(lines, key=lambda line: line.at))


def _found(incident: Incident) -> list[Line]:
    """Return one line for each code on each node, with how often and until when."""
    rows = incident.findings.order_by().values("code", "node__name")
    groups = rows.annotate(first=Min("found_at"), last=Max("last_at"), rows=Count("pk"), counted=Sum("count"))
    lines = []
    for each in groups.order_by("first")[:TIMELINE_LINES]:
        times = f", {each['counted']} times" if each["counted"] > 1 else ""
        merged = f" in {each['rows']} findings" if each["rows"] > 1 else ""
        until = each["last"] if each["last"] > each["first"] else None
        text = f"{each['code']} on {each['node__name']}{times}{merged}."
        lines.append(Line(at=each["first"], kind="found", text=text, until=until))
    return lines


def _recovered(failovers: Iterable[Failover]) -> list[Line]:
    events = FailoverEvent.objects.filter(failover__in=list(failovers)).order_by("-id")[:TIMELINE_LINES]
    return [
        Line(
            at=each.at,
            kind=f"recovery {each.failover_id}",
            text=each.sentence,
            actor=each.actor,
            link=reverse("failover", args=[each.failover_id]),
        )
        for each in events
    ]


def related(incident: Incident, failovers: Sequence[Failover]) -> tuple[Related, ...]:
    """Return incidents that share the node, the hardware, the code or the step with this one, newest first."""
    others = Incident.objects.exclude(pk=incident.pk).select_related("job", "node").order_by("-opened_at", "-id")
    around = others.filter(opened_at__gte=incident.opened_at - SAME_NODE, opened_at__lte=incident.opened_at + SAME_NODE)
    groups = [
        ("the same node", around.filter(node=incident.node) if incident.node else None),
        ("the same hardware under another name", _same_hardware(incident, around)),
        ("the same code within the hour", _same_code(incident, others)),
        ("the same job at the same step", _same_step(incident, others, failovers)),
    ]
    found = [(why, tuple(rows[:RELATED])) for why, rows in groups if rows is not None]
    return tuple(Related(why=why, incidents=rows) for why, rows in found if rows)


def _same_hardware(incident: Incident, rows: QuerySet[Incident]) -> QuerySet[Incident] | None:
    if incident.node is None:
        return None
    nodes = list(Node.objects.only("pk", "hardware_ids"))
    own = set(hardware.identities(incident.node.hardware_ids)) - quarantined.shared(nodes)
    if not own:
        return None
    others = (each for each in nodes if each.pk != incident.node_id)
    twins = [each.pk for each in others if own & set(hardware.identities(each.hardware_ids))]
    return rows.filter(node__in=twins) if twins else None


def _same_code(incident: Incident, rows: QuerySet[Incident]) -> QuerySet[Incident] | None:
    if not incident.code:
        return None
    near = {"opened_at__gte": incident.opened_at - SAME_CODE, "opened_at__lte": incident.opened_at + SAME_CODE}
    return rows.filter(code=incident.code, **near)


def _same_step(
    incident: Incident, rows: QuerySet[Incident], failovers: Sequence[Failover]
) -> QuerySet[Incident] | None:
    steps = {each.fault_step for each in failovers if each.fault_step is not None}
    if incident.job is None or not steps:
        return None
    low, high = min(steps) - STEPS_APART, max(steps) + STEPS_APART
    same = Failover.objects.filter(job=incident.job, fault_step__gte=low, fault_step__lte=high)
    return rows.filter(pk__in=same.values("incident"))
