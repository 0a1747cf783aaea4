"""What do findings of a node come to that belong to no job? One incident for each code, and a hold where it is serious.

A node that serves nothing has nothing to restart: what would move a job away from it keeps it from being used. What
many nodes show at once is one incident of the cluster; consequences belong to the incident of their cause.
"""

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.db.models import Q

from reliability.domain import faults
from reliability.domain.faults import Action, Judgement
from reliability.domain.faults.conditions import STABLE_S, cleared_by
from reliability.models import Finding, Incident, Node
from reliability.selectors import fault_codes, fault_context
from reliability.services import belonging, clock, cluster_incidents, decisions, dispatch, nodes

COOL_DOWN_S = STABLE_S
"""The same code so soon after an incident that was only observed was closed opens that one again.

One that held the node is over once somebody closed it or released the node: another is opened, and holds it anew.
"""
CAUSE_S = 60.0
"""Consequences on a node without a job belong to what was found so shortly before."""
LOOKED_AT = 20
SERIOUS = (Action.FAILOVER, Action.HOLD)


def judge_node(node_id: int) -> list[Incident]:
    """Judge what nobody has judged yet of a node without a job. Returns the incidents it belongs to."""
    belonging.mute_planned(belonging.unjudged().filter(node=node_id, job=None))
    gathered = cluster_incidents.gather(node_id)
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(pk=node_id)
        rows = belonging.unjudged().filter(node=node, job=None).select_related("node", "job").order_by("id")
        by_code: dict[str, list[Finding]] = {}
        for finding in rows:
            by_code.setdefault(finding.code, []).append(finding)
        judged = [_judge_code(node, code, fresh) for code, fresh in by_code.items()]
        return [*gathered, *(each for each in judged if each is not None)]


def _judge_code(node: Node, code: str, fresh: Sequence[Finding]) -> Incident | None:
    """Judge the findings of one code; None while a condition is awaited that may end by itself."""
    cause = _cause(node, fresh) if fault_codes.table().lookup(code).follow_up else None
    if cause is not None:
        Finding.objects.filter(pk__in=[each.pk for each in fresh]).update(incident=cause)
        dispatch.changed("overview", f"incident:{cause.pk}")
        return cause
    ended = _ended(node, code, fresh)
    if ended is not None:
        return ended
    standing = _standing(node, code)
    judgement = _judgement([*(standing.findings.select_related("node", "job") if standing else ()), *fresh])
    if judgement is None or judgement.undecided:
        return None
    serious = judgement.action in SERIOUS
    incident = standing or Incident(node=node, code=code, opened_at=clock.now())
    worse = serious and incident.action != Action.HOLD
    if standing is None or worse:
        _describe(incident, judgement, code, serious=serious)
        incident.save()
    Finding.objects.filter(pk__in=[each.pk for each in fresh]).update(incident=incident)
    if worse and decisions.taken_by_itself(incident):
        nodes.mark_unhealthy(node, incident)
        nodes.hold(node, owner=nodes.AUTOMATION, reason=incident.summary)
    dispatch.changed("overview", f"node:{node.pk}")
    return incident


def _cause(node: Node, fresh: Sequence[Finding]) -> Incident | None:
    """Return the incident that consequences on this node belong to: its own, or that of a job that just ran on it."""
    since = min(each.found_at for each in fresh) - timedelta(seconds=CAUSE_S)
    near = Q(opened_at__gte=since) | Q(closed_at=None) | Q(closed_at__gte=since)
    mine = Q(findings__node=node) | Q(job__slots__node=node)
    rows = Incident.objects.filter(near, mine).exclude(code="").order_by("-id").distinct()[:LOOKED_AT]
    table = fault_codes.table()
    return next((each for each in rows if not table.lookup(each.code).follow_up), None)


def _standing(node: Node, code: str) -> Incident | None:
    """Return the incident of this code that is open, or the observed one that was closed a moment ago, open again."""
    rows = Incident.objects.filter(node=node, job=None, code=code).order_by("-id")
    closed = rows.filter(action=Action.OBSERVE, closed_at__gte=clock.now() - timedelta(seconds=COOL_DOWN_S))
    standing = rows.filter(closed_at=None).first() or closed.first()
    if standing is not None and standing.closed_at is not None:
        standing.closed_at, standing.close_reason = None, ""
        standing.save(update_fields=["closed_at", "close_reason"])
    return standing


def _describe(incident: Incident, judgement: Judgement, code: str, *, serious: bool) -> None:
    row = fault_codes.table().lookup(code)
    incident.fault_class = judgement.fault_class if judgement.root else row.fault_class
    incident.action = Action.HOLD if serious else Action.OBSERVE
    incident.summary = f"{row.meaning} ({code} on {incident.node})"
    incident.reasons = list(judgement.reasons)


def _ended(node: Node, code: str, fresh: Sequence[Finding]) -> Incident | None:
    """Give what says that a condition is over to the open incident with that condition, of the node or of a job on it.

    An incident of the node that is only observed is closed when the condition stands at no place any more.
    """
    clears = fault_codes.table().lookup(code).clears
    rows = Incident.objects.filter(closed_at=None, findings__node=node, findings__code=clears)
    incident = rows.order_by("-id").first() if clears else None
    if incident is None:
        return None
    observed = incident.job_id is None and incident.action == Action.OBSERVE
    if observed and not _stands(incident, fresh):
        incident.closed_at, incident.close_reason = clock.now(), f"It ended by itself ({code})."
        incident.save(update_fields=["closed_at", "close_reason"])
    Finding.objects.filter(pk__in=[each.pk for each in fresh]).update(incident=incident)
    dispatch.changed("overview", f"node:{node.pk}", f"incident:{incident.pk}")
    return incident


def _stands(incident: Incident, fresh: Sequence[Finding]) -> bool:
    """Return whether a condition of an incident stands at a place that nothing found so far says is over."""
    matcher = fault_codes.matcher()
    kept = incident.findings.select_related("node", "job")
    found = [fault_context.found(each, matcher) for each in (*kept, *fresh)]
    conditions = [each for each in found if each.code == incident.code]
    return any(cleared_by(each, found, matcher.table) is None for each in conditions)


def _judgement(findings: Sequence[Finding]) -> Judgement | None:
    matcher = fault_codes.matcher()
    return faults.judge(
        [fault_context.found(finding, matcher) for finding in findings],
        unknown_action=Action.OBSERVE,
        now=clock.now().timestamp(),
        settle_s=0.0,
        context=fault_context.of_node(findings, matcher),
        table=matcher.table,
    )
