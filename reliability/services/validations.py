"""Is a standby fit: does its network keep up with the others', and does it compute the same bits (M4)?

Two checks, one after the other, each against two healthy nodes measured in the same run. A node that fails, crashes or
does not answer in a check of itself is held; a peer that does not answer is only replaced by another. With one
other node there is no reference pair, so that any bandwidth counts, and the result says so. With none, bandwidth is
not judged, which is not a pass: such a standby is used only by a recovery that finds no other node at all.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from reliability import conf
from reliability.domain.health import USABLE, NodeRole
from reliability.domain.standby import Verdict
from reliability.models import Failover, Hold, Node, TrialRestore, Validation
from reliability.selectors import core
from reliability.services import clock, dispatch, node_health, nodes, probes, quarantine
from reliability.services.probes import Finished

AGAIN_S = 60.0
"""A check that failed, or could not be judged, in the background is made again after this long."""
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
    if verdict is None and failover is not None:
        return _all_that_could_be_judged(node, failover)
    if verdict is not Verdict.PASS or ended_at is None:
        return False
    age_s = (clock.now() - ended_at).total_seconds()
    if age_s <= conf.cluster_policy().validation_max_age_s:
        return True
    return failover is not None and ended_at >= failover.created_at


def _all_that_could_be_judged(node: Node, failover: Failover) -> bool:
    """The last choice: in this recovery no other node was there to measure against, and the rest was passed.

    Every other standby would have been that other node, so nothing better is passed over.
    """
    newest = core.newest_checks_of(node)
    ended = [row for row in newest.values() if row.ended_at and row.started_at >= failover.created_at]
    return len(ended) == len(CHECKS) and all(row.verdict in ("", Verdict.PASS) for row in ended)


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
    row.verdict, row.reason, row.ended_at = finished.verdict or "", finished.reason, clock.now()
    recovery = row.failover_id
    if finished.verdict is None:
        row.failover = None  # what decides nothing turns nobody down
    row.save(update_fields=["verdict", "reason", "ended_at", "measured", "failover"])
    if finished.verdict not in (Verdict.PASS, None):
        during = f" for failover {recovery}" if recovery else ""
        name = f"{row.get_check_kind_display()} check{during}"
        nodes.hold(node, owner=nodes.AUTOMATION, reason=f"{name}: {finished.reason}")
        if finished.verdict is Verdict.FAIL and row.check_kind == Validation.Check.SDC:
            quarantine.put(node, reason=f"{name}: {finished.reason}")
            node_health.refresh(node)
        # The other check cannot change the verdict any more, and must not keep the node busy.
        Validation.objects.filter(node=node, ended_at=None).delete()
    elif core.validation_of(node)[0] is Verdict.PASS:
        _lift_own_holds(node)
    dispatch.changed(f"node:{node.pk}", "overview")


def _own_holds() -> QuerySet[Hold]:
    """Return the holds that a check in the background set and that a later pass lifts.

    Wrong bits are not among them: such a fault comes and goes, and one right answer does not disprove it.
    """
    doubted = Validation.objects.filter(check_kind=Validation.Check.SDC, verdict=Verdict.FAIL).values("node_id")
    told = [Q(reason__startswith=f"{check.label} check: ") for check in CHECKS]
    named = told[0] | told[1]
    own = core.active_holds().filter(named, owner=nodes.AUTOMATION)
    return own.exclude(reason__startswith=f"{Validation.Check.SDC.label} check: ", node__in=doubted)


def _lift_own_holds(node: Node) -> None:
    for hold in _own_holds().filter(node=node):
        nodes.release_hold(hold, by=nodes.AUTOMATION)


def running_nodes() -> list[int]:
    """Return the nodes that are being checked."""
    return list(Validation.objects.filter(ended_at=None).values_list("node_id", flat=True).distinct())


def due(now: datetime) -> Node | None:
    """Return the standby whose checks should be made anew in the background, one at a time."""
    if Validation.objects.filter(ended_at=None).exists():
        return None
    kept = core.active_holds().exclude(pk__in=_own_holds().values("pk")).values("node_id")
    tried = set(_own_holds().values_list("node_id", flat=True))
    trying = TrialRestore.objects.filter(state=TrialRestore.State.RUNNING).values("node_id")  # a check would end it
    idle = core.free_nodes().filter(health__in=USABLE, role=NodeRole.STANDBY).exclude(pk__in=kept)
    idle = idle.exclude(pk__in=trying)
    for node in idle.order_by("tier", "name"):
        if _is_due(node, now, held=node.pk in tried):
            return node
    return None


def _is_due(node: Node, now: datetime, *, held: bool) -> bool:
    max_age_s = conf.cluster_policy().validation_max_age_s
    ends = [row.ended_at for row in core.newest_checks_of(node).values() if row.ended_at]
    if held:
        return not ends or (now - max(ends)).total_seconds() > min(_patience_s(node), max_age_s)
    verdict, ended_at = core.validation_of(node)
    if verdict is not None and ended_at is not None:
        return (now - ended_at).total_seconds() > 0.8 * max_age_s
    unjudged = len(ends) == len(CHECKS)
    return not unjudged or (now - max(ends)).total_seconds() > AGAIN_S


def _patience_s(node: Node) -> float:
    """Twice as long after every failure in a row: a link that stays bad is not measured all day."""
    failures = 0
    for row in Validation.objects.filter(node=node).exclude(ended_at=None).order_by("-started_at", "-id")[:20]:
        if row.check_kind == Validation.Check.SDC and row.verdict == Verdict.PASS:
            break  # the second of two checks: all was well then
        failures += row.verdict not in ("", Verdict.PASS)
    return float(AGAIN_S * 2 ** max(failures - 1, 0))
