"""Which jobs run, and what brings one from submitted to running and to its end?

`drive` may be called any number of times: it reads what is there and does the next thing that is missing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from reliability.domain.health import NodeHealth, NodeRole
from reliability.errors import DomainError
from reliability.models import Epoch, Job, Node, OrderRecord, Rank, Slot
from reliability.selectors import core
from reliability.services import clock, dispatch, failovers, jobspec, launch, nodes, orders


def submit(spec: Mapping[str, Any], *, by: str) -> Job:
    """Keep a new job. Raises InvalidInput naming the field that is wrong."""
    values = jobspec.read(spec)
    plan = [{"from_step": 0, "every_steps": values["every_steps"]}]
    with transaction.atomic():
        job = Job.objects.create(**values, period_plan=plan, created_at=clock.now(), created_by=by)
        for index in range(job.nodes):
            slot = Slot.objects.create(job=job, index=index)
            first = index * job.ranks_per_node
            Rank.objects.bulk_create(
                Rank(job=job, slot=slot, rank=first + local) for local in range(job.ranks_per_node)
            )
        dispatch.changed("overview", f"job:{job.pk}")
    return job


def start(job: Job, *, by: str) -> None:
    """Ask for a job to be started; it starts as soon as enough nodes are free. Raises DomainError."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job.pk)
        again = job.state == Job.State.FAILED and job.epoch == 0
        if job.state != Job.State.PENDING and not again:
            raise DomainError(f"Job {job.name} is {job.state}.", hint="Submit it again under another name.")
        if again:
            Slot.objects.filter(job=job).update(node=None)
            launch.forget_failed_prepares(job)
            job.ended_at = None
        job.state, job.state_reason, job.start_asked_at = Job.State.PENDING, f"Start asked by {by}.", clock.now()
        job.save(update_fields=["state", "state_reason", "start_asked_at", "ended_at"])
        dispatch.changed("overview", f"job:{job.pk}")
        dispatch.task("controller.drive_job", job.pk)


def stop(job: Job, *, by: str) -> None:
    """End a job: its ranks are stopped, its containers removed, an open recovery is cancelled. Raises DomainError."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job.pk)
        if job.state in Job.TERMINAL:
            raise DomainError(f"Job {job.name} is over already ({job.state}).")
        failovers.end_for_stop(job, by=by)
        _end(job, Job.State.STOPPED, f"Stopped by {by}.")


def _end(job: Job, state: str, reason: str) -> None:
    """Close a job. Once it ran, the epoch rises once more, so that whatever still runs of it is refused."""
    job.refresh_from_db()
    now = clock.now()
    if job.epoch > 0:
        job.epoch += 1
    job.state, job.state_reason, job.ended_at = state, reason, now
    job.save(update_fields=["epoch", "state", "state_reason", "ended_at"])
    orders.withdraw(now, job=job)
    launch.release_everywhere(job)
    for slot in core.slots_of(job):
        if slot.node is not None:
            nodes.free(slot.node)
    dispatch.changed("overview", f"job:{job.pk}")


def drive(job_id: int) -> None:
    """Do the next thing that this job needs."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job_id)
        if job.state == Job.State.PENDING and job.start_asked_at is not None:
            _place(job)
        if job.state == Job.State.STARTING:
            _bring_up(job)
        if job.state in (Job.State.STARTING, Job.State.RUNNING):
            _complete_if_done(job)


def _place(job: Job) -> None:
    """Give every slot a node, or say how many are missing."""
    wanted = job.nodes
    found = _free_nodes(job)
    if len(found) < wanted:
        reason = f"Waiting for nodes: {len(found)} of {wanted} are free, healthy and run {job.runtime}."
        Job.objects.filter(pk=job.pk).exclude(state_reason=reason).update(state_reason=reason)
        return
    for slot, node in zip(core.slots_of(job), found, strict=False):
        Slot.objects.filter(pk=slot.pk).update(node=node)
        Node.objects.filter(pk=node.pk).update(role=NodeRole.TRAINING)
    _set_state(job, Job.State.STARTING, "Containers are made ready.")


def _free_nodes(job: Job) -> list[Node]:
    """Return usable nodes, those meant for training first, then standbys, the worst tier first: it is missed least."""
    held = core.active_holds().values("node_id")
    free = core.free_nodes().filter(health=NodeHealth.HEALTHY, runtime=job.runtime).exclude(pk__in=held)
    locked = list(Node.objects.select_for_update().filter(pk__in=free.values("pk")).order_by("name"))
    taken = set(core.active_slots().values_list("node_id", flat=True))
    usable = [node for node in locked if node.pk not in taken]
    return sorted(usable, key=lambda node: (node.role_hint != NodeRole.TRAINING, -node.tier, node.name))[: job.nodes]


def _set_state(job: Job, state: str, reason: str, **more: Any) -> None:
    for name, value in {"state": state, "state_reason": reason, **more}.items():
        setattr(job, name, value)
    job.save(update_fields=["state", "state_reason", *more])
    dispatch.changed("overview", f"job:{job.pk}")


def _bring_up(job: Job) -> None:
    """Prepare all containers, then start all ranks, then wait for the first step of each."""
    slots = core.slots_of(job)
    if job.epoch == 0:
        prepared = [launch.prepare(job, slot.node) for slot in slots if slot.node]
        if _failed(job, prepared) or not all(orders.succeeded(order) for order in prepared):
            return
        _open_first_epoch(job)
    started = [launch.start(slot, job=job, epoch=job.epoch, restore=None, failover=None) for slot in slots]
    if _failed(job, started):
        return
    ranks = list(job.ranks.all())
    if all(_under_way(rank, job.epoch) for rank in ranks):
        _set_state(job, Job.State.RUNNING, "")


def _under_way(rank: Rank, epoch: int) -> bool:
    return rank.first_step_epoch == epoch or (rank.state == Rank.State.EXITED and rank.epoch == epoch)


def _open_first_epoch(job: Job) -> None:
    now = clock.now()
    _set_state(job, Job.State.STARTING, "Ranks are started.", epoch=1, started_at=now)
    Epoch.objects.get_or_create(job=job, number=1, defaults={"reason": "First start.", "started_at": now})


def _failed(job: Job, given: Sequence[OrderRecord]) -> bool:
    """End the job when a node could not do its part, with what it said and what to do about it."""
    for order in given:
        if not orders.is_open(order) and not orders.succeeded(order):
            error = orders.error_of(order)
            told = (
                f"Node {order.node.name} could not {order.kind} ({error['code']}): {error['message']} {error['hint']}"
            )
            _end(job, Job.State.FAILED, told.strip())
            return True
    return False


def warm_standbys(job: Job) -> None:
    """Have the job's container made ready on every free standby; a standby that cannot is only noted."""
    held = core.active_holds().values("node_id")
    free = core.free_nodes().filter(runtime=job.runtime, health=NodeHealth.HEALTHY).exclude(pk__in=held)
    for node in free.order_by("tier", "name"):
        launch.prepare(job, node)


def _complete_if_done(job: Job) -> None:
    """A job is complete when every rank of the present attempt has ended well."""
    if job.epoch == 0 or Rank.objects.filter(job=job).exclude(state=Rank.State.EXITED, epoch=job.epoch).exists():
        return
    _end(job, Job.State.COMPLETED, "All ranks finished.")


def open_jobs() -> list[int]:
    """Return the jobs that are not over and were asked to start."""
    rows = Job.objects.exclude(state__in=Job.TERMINAL).exclude(start_asked_at=None)
    return list(rows.order_by("pk").values_list("pk", flat=True))
