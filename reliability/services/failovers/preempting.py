"""Whose work is stopped to make room for a recovery, and is the node free after that (M3)?

The stop and its event are one transaction, and from then on the node counts as free, so that a step that is repeated
stops nothing twice.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Q

from reliability import conf
from reliability.domain.failover import Event
from reliability.domain.orders import OrderKind
from reliability.domain.policy import Approval
from reliability.domain.standby import Ranked
from reliability.models import Failover, Job, Node, OrderRecord
from reliability.services import orders
from reliability.services.failovers import ending
from reliability.services.failovers.moves import AUTOMATION, Outcome


def allowed(failover: Failover, ranked: Iterable[Ranked]) -> list[Ranked]:
    """Return the usable candidates without those whose job nobody agreed to stop."""
    shown = {move.get("preempts") for move in failover.proposal.get("moves", [])}
    anything = failover.job.approval == Approval.AUTOMATIC
    return [
        each
        for each in ranked
        if each.eligible and (anything or not each.preempts or each.candidate.occupied_by in shown)
    ]


def preempt(failover: Failover, chosen: Sequence[Ranked]) -> Outcome | None:
    """Stop the job of the first chosen node that is occupied; None when no node is, or when that job is busy now."""
    taken = next((each.candidate for each in chosen if each.preempts), None)
    if taken is None:
        return None
    # Two recoveries that want each other's nodes must not wait for each other: the later one looks again.
    job = Job.objects.select_for_update(skip_locked=True).filter(name=taken.occupied_by).first()
    if job is None or job.state in Job.TERMINAL:
        return None
    reason = (
        f"Preempted by failover {failover.pk} of job {failover.job.name}, which needs node {taken.node}. "
        "Its snapshots stay, and it can be started again."
    )
    ending.stop(job, by=AUTOMATION, reason=reason)
    return Outcome(Event.PREEMPTED, {"job": job.name, "node": taken.node, "reason": reason})


def not_free(failover: Failover, takers: Sequence[Node], now: datetime) -> list[OrderRecord]:
    """Return the orders to give up another job's container that nodes have not done yet, or could not do."""
    failed = Q(state__in=(OrderRecord.State.FAILED, OrderRecord.State.REFUSED), created_at__gte=failover.fault_at)
    asked = OrderRecord.objects.filter(node__in=takers, kind=OrderKind.RELEASE).exclude(job=failover.job)
    return list(asked.filter(failed | Q(state=OrderRecord.State.PENDING)).select_related("node", "job"))


def hopeless(failover: Failover, releases: Iterable[OrderRecord], now: datetime) -> tuple[str, str] | None:
    """Return (node, reason) of a node that will not become free in time, None while all may."""
    limit_s = conf.cluster_policy().order_ttl_s
    for order in releases:
        job = order.job.name if order.job else "another job"
        waited = (now - max(order.created_at, failover.state_since)).total_seconds()
        if not orders.is_open(order):
            return order.node.name, f"It could not give up job {job}: {orders.error_of(order)['message']}"
        if waited >= limit_s:
            return order.node.name, f"It did not give up job {job} within {waited:.0f} s."
    return None
