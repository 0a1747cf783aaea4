"""What do many nodes show at once that serve no job? One incident of the cluster; no node of it is held or marked.

Incidents of single nodes that were opened for the same code before it was known how many there are become part of it,
and what they had held back is given free again.
"""

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.db.models import Max

from reliability import conf
from reliability.domain.faults import Action, Reach
from reliability.domain.faults.findings import PRINTED
from reliability.domain.faults.radius import Sighting, reach
from reliability.models import Finding, Incident, Node
from reliability.selectors import core, fault_codes
from reliability.services import belonging, clock, dispatch, holds, incident_log, many_nodes, node_health, nodes
from reliability.services.incident_locks import locked
from reliability.services.node_events import AUTOMATION

JOINED_S = 600.0
"""A node that shows the code so soon after many showed it, or after one more did, belongs to them.

After that it is judged for itself, one of them that shows it again too: else a single sick node would keep the event
going, and every node out of it.
"""


def gather(node_id: int) -> list[Incident]:
    """Gather what this node shares with many others; what it has for itself is left to be judged for itself."""
    codes = list(belonging.unjudged().filter(node=node_id, job=None).values_list("code", flat=True).distinct())
    found = [_gather_code(code, node_id) for code in sorted(codes)]
    return [each for each in found if each is not None]


def _gather_code(code: str, node_id: int) -> Incident | None:
    far = _reach(code)
    standing = _standing(code, far)
    if standing is None and (far is None or not _idle_among(far, node_id)):
        return None
    with transaction.atomic():
        names = far.nodes if far is not None else ()
        # In the order of names: two that gather the same wait for each other in line.
        hit = list(Node.objects.select_for_update(no_key=True).filter(name__in=names).order_by("name"))
        standing = _standing(code, far)
        if standing is None and far is None:
            return None  # closed or released since: what one node shows is judged for itself
        incident = standing or _opened(code, far)
        fresh = belonging.unjudged().filter(job=None, code=code, node__in=[node_id, *(node.pk for node in hit)])
        fresh.update(incident=incident)
        _absorb(incident, code, hit)
        _retell(incident, far)
    dispatch.changed("overview", f"incident:{incident.pk}", f"node:{node_id}")
    return incident


def _standing(code: str, far: Reach | None) -> Incident | None:
    """Return the open incident of the cluster for this code, where what is found now still belongs to it.

    It does when many show it at once again, however late, and shortly after that for every other node.
    """
    rows = Incident.objects.filter(job=None, node=None, code=code, closed_at=None, released_at=None)
    row = rows.exclude(reach={}).order_by("id").first()
    if row is None or far is not None:
        return row
    grown_at = float(row.reach.get("grown_at", row.opened_at.timestamp()))
    return row if grown_at >= clock.now().timestamp() - JOINED_S else None


def _reach(code: str) -> Reach | None:
    rule = conf.cluster_policy().radius
    since = clock.now() - timedelta(seconds=2 * rule.window_s)
    rows = Finding.objects.filter(code=code, found_at__gte=since, maintenance=None).exclude(source=PRINTED).order_by()
    latest = rows.values_list("node__name").annotate(at=Max("found_at"))
    seen = [Sighting(code=code, node=name, at=at.timestamp()) for name, at in latest]
    return reach(code, seen, total=Node.objects.count(), of="cluster", rule=rule)


def _idle_among(far: Reach, node_id: int) -> bool:
    """Return whether this node and another without a job are of those that show it: else it is an event of the job."""
    idle = core.free_nodes().filter(name__in=far.nodes)
    return idle.filter(pk=node_id).exists() and idle.count() > 1


def _opened(code: str, far: Reach | None) -> Incident:
    row = fault_codes.table().lookup(code)
    serious = row.action in (Action.FAILOVER, Action.HOLD)
    incident = Incident.objects.create(
        code=code,
        fault_class=row.fault_class,
        action=Action.HOLD if serious else Action.OBSERVE,
        held_back=serious,
        meanwhile=Action.OBSERVE if serious else "",
        opened_at=clock.now(),
        reach={"code": code, "codes": [code]},
        reasons=[far.sentence, row.advice] if far else [row.advice],
    )
    if serious:
        told = "Held back: no node is held or marked for what so many show at once."
        incident_log.write(incident, incident_log.Kind.HELD_BACK, told)
    return incident


def _absorb(incident: Incident, code: str, hit: Sequence[Node]) -> None:
    """Take in the incidents of single nodes that this code had opened, and lift what came of them."""
    since = clock.now() - timedelta(seconds=2 * conf.cluster_policy().radius.window_s)
    alone = Incident.objects.filter(job=None, node__in=hit, code=code, closed_at=None, opened_at__gte=since)
    for each in alone.exclude(pk=incident.pk).select_related("node").order_by("node__name"):
        Finding.objects.filter(incident=each).update(incident=incident)
        told = f"Part of incident {incident.pk}: many nodes show the same at once."
        Incident.objects.filter(pk=each.pk).update(closed_at=clock.now(), close_reason=told)
        incident_log.write(each, incident_log.Kind.MERGED, told)
        incident_log.write(incident, incident_log.Kind.MERGED, f"Incident {each.pk} of {each.node} became part of it.")
        for hold in core.active_holds().filter(node=each.node, owner=AUTOMATION, reason=each.summary):
            holds.release_hold(hold, by=AUTOMATION, note=told)
        if each.node is not None:
            node_health.absolve(each.node, each, note=told)


def _retell(incident: Incident, far: Reach | None) -> None:
    """Say how far it reached by now, and since when it is no wider."""
    before = set(incident.reach.get("nodes", ()))
    seen = sorted(set(incident.findings.values_list("node__name", flat=True)))
    total = max(len(seen), far.total if far else int(incident.reach.get("total", 0)))
    window_s = far.window_s if far else incident.reach.get("window_s", conf.cluster_policy().radius.window_s)
    incident.reach = {**incident.reach, "nodes": seen, "total": total, "of": "cluster", "window_s": window_s}
    if far is not None or set(seen) - before:
        incident.reach["grown_at"] = clock.now().timestamp()
    meaning = fault_codes.table().lookup(incident.code).meaning
    incident.summary = f"{meaning} ({incident.code} on {len(seen)} of {total} nodes of the cluster at once)"
    incident.save(update_fields=["reach", "summary"])


def release(incident: Incident, *, by: str, note: str) -> None:
    """Hold and mark every node of a held-back incident after all. Raises DomainError when nothing is held back."""
    with transaction.atomic():
        incident = locked(incident)
        many_nodes.released(incident, by=by, note=note)
        for node in Node.objects.filter(name__in=incident.reach.get("nodes", ())).order_by("name"):
            holds.hold(node, owner=AUTOMATION, reason=incident.summary)
            nodes.mark_unhealthy(node, incident)
