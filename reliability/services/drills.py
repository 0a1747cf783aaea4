"""Breaking a node on purpose: was the job unharmed, or what did recovery take?"""

from datetime import datetime

from django.db import transaction

from reliability import conf
from reliability.domain.failover import OPEN, State
from reliability.domain.health import SERVING
from reliability.domain.orders import OrderKind
from reliability.errors import DomainError, InvalidInput
from reliability.models import Drill, Failover, Job, Node, OrderRecord, Rank
from reliability.selectors import core
from reliability.services import clock, dispatch, launch, orders

LIMIT_S = 600.0


def start(job: Job, *, node: Node, what: str, by: str) -> Drill:
    """Give the order that breaks the node. Raises InvalidInput, DomainError."""
    if what not in Drill.What.values:
        raise InvalidInput("what", f"{what} is no drill", hint=f"One of: {', '.join(Drill.What.values)}.")
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        slot = job.slots.filter(node=node).first()
        if slot is None:
            raise InvalidInput("node", f"{node.name} holds no slot of job {job.name}", hint="Name one of its nodes.")
        if job.state != Job.State.RUNNING:
            raise DomainError(f"Job {job.name} is {job.get_state_display()}.", hint="A drill needs a running job.")
        if Drill.objects.filter(job=job, state=Drill.State.RUNNING).exists():
            raise DomainError(f"A drill of job {job.name} is going on.", hint="Wait for its end.")
        drill = Drill.objects.create(job=job, node=node, what=what, started_by=by, started_at=clock.now())
        orders.issue(
            node,
            kind=OrderKind.DRILL,
            key=f"drill:{drill.pk}",
            payload={"what": what, "rank": launch.local_ranks(job, slot)[0]["rank"], "seconds": seconds(what)},
            job=job,
            epoch=job.epoch,
        )
        dispatch.changed("overview", f"job:{job.pk}", f"node:{node.pk}")
    return drill


def seconds(what: str) -> float:
    """Return how long the node stays broken: long enough to be found out, and for beats not much longer."""
    silence_s = conf.cluster_policy().silence_s
    return {"kill_node": 4 * silence_s, "stop_heartbeats": 2 * silence_s}.get(what, 0.0)


def drive(drill_id: int, now: datetime) -> None:
    """Close a drill when its outcome is known."""
    with transaction.atomic():
        drill = Drill.objects.select_for_update(of=("self",)).select_related("job", "node", "failover").get(pk=drill_id)
        if drill.state != Drill.State.RUNNING:
            return
        order = OrderRecord.objects.filter(key=f"drill:{drill.pk}").first()
        ended = _by_order(drill, order) or _by_failover(drill) or _by_time(drill, order, now)
        if ended is None:
            return
        drill.state, drill.result = ended
        drill.ended_at = now
        drill.save(update_fields=["state", "result", "ended_at"])
        dispatch.changed("overview", f"job:{drill.job_id}")


Ending = tuple[Drill.State, dict[str, object]]


def _by_order(drill: Drill, order: OrderRecord | None) -> Ending | None:
    if order is None or orders.is_open(order) or orders.succeeded(order) or drill.failover_id is not None:
        return None
    if order.state == OrderRecord.State.EXPIRED and drill.what != Drill.What.KILL_RANK:
        return None  # the node was silenced before it could answer
    return Drill.State.FAILED, {"reason": orders.error_of(order)["message"]}


def _by_failover(drill: Drill) -> Ending | None:
    failover = drill.failover
    if failover is None or failover.state in OPEN:
        return None
    if failover.state == State.COMPLETED:
        return Drill.State.RECOVERED, _recovered(drill, failover)
    return Drill.State.FAILED, {"reason": f"Failover {failover.pk} is {failover.state}."}


def _recovered(drill: Drill, failover: Failover) -> dict[str, object]:
    """Count from the drill, which is the fault: a node that was silenced reports it only when it is back."""
    stages = [[stage["stage"], stage["seconds"]] for stage in core.stage_times(failover)]
    unnoticed = max(0.0, (failover.fault_at - drill.started_at).total_seconds())
    if stages:
        stages[0][1] += unnoticed
    return {"stages": stages, "seconds": (core.recovery_seconds(failover) or 0.0) + unnoticed}


def _by_time(drill: Drill, order: OrderRecord | None, now: datetime) -> Ending | None:
    """Without a recovery: unharmed when the node is heard again and every rank stepped on after the drill's end."""
    waited = (now - drill.started_at).total_seconds()
    over = drill.started_at.timestamp() + seconds(drill.what)
    answered = order is not None and orders.succeeded(order)
    if drill.failover_id is None and drill.what == Drill.What.STOP_HEARTBEATS and answered and now.timestamp() > over:
        node = Node.objects.get(pk=drill.node_id)
        ranks = Rank.objects.filter(job=drill.job)
        steps = [rank.progress_at.timestamp() if rank.progress_at else 0.0 for rank in ranks]
        if node.health in SERVING and min(steps, default=0.0) > over:
            return Drill.State.UNHARMED, {"seconds": waited}
    if waited > LIMIT_S and drill.failover_id is None:
        return Drill.State.FAILED, {"reason": f"Nothing was found within {waited:.0f} s."}
    return None


def running() -> list[int]:
    """Return the drills whose outcome is not known yet."""
    return list(Drill.objects.filter(state=Drill.State.RUNNING).values_list("pk", flat=True))
