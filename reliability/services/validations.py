"""Is a standby fit: does its network keep up with the others', and does it compute the same bits (M4)?

Two checks, one after the other, each against two healthy nodes measured in the same run. A node that fails, crashes or
does not answer in a check of itself is held; a peer that does not answer is only replaced by another. With one
other node there is no reference pair, so that any bandwidth counts; with none, bandwidth cannot be judged at all
and the comparison of its own rounds decides. Both weaker rules are written into the result.
"""

from datetime import datetime

from django.db import transaction

from reliability import conf
from reliability.domain.health import NodeHealth, NodeRole
from reliability.domain.standby import Verdict
from reliability.models import Failover, Node, Validation
from reliability.selectors import core
from reliability.services import clock, dispatch, nodes, probes
from reliability.services.probes import Finished

CHECKS = (Validation.Check.BANDWIDTH, Validation.Check.SDC)


def begin(node: Node, *, failover: Failover | None = None) -> None:
    """Start both checks of a node, unless they run already; a running one is taken over by the recovery that asks."""
    with transaction.atomic():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        running = Validation.objects.filter(node=node, ended_at=None)
        if running.exists():
            if failover is not None:
                running.filter(failover=None).update(failover=failover)
        else:
            _create(node, failover)
        dispatch.task("controller.drive_validation", node.pk)


def _create(node: Node, failover: Failover | None) -> None:
    now = clock.now()
    for check in CHECKS:
        Validation.objects.create(node=node, failover=failover, check_kind=check, started_at=now)
    dispatch.changed(f"node:{node.pk}", "overview")


def is_fresh(node: Node, *, failover: Failover | None = None) -> bool:
    """Return whether the node passed every check lately, or for this recovery."""
    verdict, ended_at = core.validation_of(node)
    if verdict is not Verdict.PASS or ended_at is None:
        return False
    age_s = (clock.now() - ended_at).total_seconds()
    if age_s <= conf.cluster_policy().validation_max_age_s:
        return True
    return failover is not None and ended_at >= failover.created_at


def drive(node_id: int) -> list[int]:
    """Take the checks of a node as far as answers allow. Returns the recoveries that waited for what has ended."""
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(pk=node_id)
        waiting = set()
        for _ in CHECKS:
            row = Validation.objects.filter(node=node, ended_at=None).order_by("id").first()
            if row is None:
                break
            finished = probes.drive(row, node)
            if finished is None:
                break
            _end(row, node, finished)
            if row.failover_id:
                waiting.add(row.failover_id)
        return sorted(waiting)


def _end(row: Validation, node: Node, finished: Finished) -> None:
    now = clock.now()
    row.verdict, row.reason, row.ended_at = finished.verdict, finished.reason, now
    row.save(update_fields=["verdict", "reason", "ended_at", "measured"])
    if finished.verdict is not Verdict.PASS:
        nodes.hold(node, owner=nodes.AUTOMATION, reason=f"{row.get_check_kind_display()} check: {finished.reason}")
        # The other check cannot change the verdict any more, and must not keep the node busy.
        Validation.objects.filter(node=node, ended_at=None).delete()
    dispatch.changed(f"node:{node.pk}", "overview")


def running_nodes() -> list[int]:
    """Return the nodes that are being checked."""
    return list(Validation.objects.filter(ended_at=None).values_list("node_id", flat=True).distinct())


def due(now: datetime) -> Node | None:
    """Return the standby whose checks should be made anew in the background, one at a time."""
    if Validation.objects.filter(ended_at=None).exists():
        return None
    limit_s = 0.8 * conf.cluster_policy().validation_max_age_s
    held = core.active_holds().values("node_id")
    idle = core.free_nodes().filter(health=NodeHealth.HEALTHY, role=NodeRole.STANDBY).exclude(pk__in=held)
    for node in idle.order_by("tier", "name"):
        verdict, ended_at = core.validation_of(node)
        if verdict is None or ended_at is None or (now - ended_at).total_seconds() > limit_s:
            return node
    return None
