"""Which jobs run, and what brings one from submitted to running and to its end?

`drive` may be called any number of times: it reads what is there and does the next thing that is missing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from reliability import conf
from reliability.domain.health import USABLE, NodeHealth, NodeRole
from reliability.domain.orders import OrderKind
from reliability.domain.snapshots import SnapshotId
from reliability.errors import DomainError, NoRestorePoint
from reliability.models import AttemptEnd, Epoch, Failover, Incident, Job, Node, OrderRecord, Rank, Slot
from reliability.selectors import core, maintenance, not_free, standbys
from reliability.services import clock, dispatch, jobspec, launch, nodes, orders, restores
from reliability.services.failovers import ending, skipping

LATE_HINT = "Look at the rank's output on its node: it hangs, or its first step takes longer than the limit."


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
    """Ask for a job to be started; it starts as soon as enough nodes are free.

    One that was stopped, was preempted or has failed goes on in a new epoch from its newest restore point. Raises
    DomainError when it is under way or complete, NoRestorePoint when nothing it saved can be read any more.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job.pk)
        if job.state in (Job.State.STOPPED, Job.State.FAILED):
            _renew(job, by=by)
        elif job.state != Job.State.PENDING:
            over = job.state == Job.State.COMPLETED
            hint = "Submit it again under another name." if over else "It is under way; stop it first to start it anew."
            raise DomainError(f"Job {job.name} is {job.state}.", hint=hint)
        job.state, job.state_reason, job.start_asked_at = Job.State.PENDING, f"Start asked by {by}.", clock.now()
        job.save(update_fields=["state", "state_reason", "start_asked_at", "ended_at", "epoch"])
        dispatch.changed("overview", f"job:{job.pk}")
        dispatch.task("controller.drive_job", job.pk)


def _renew(job: Job, *, by: str) -> None:
    """Make a job that is over startable: nothing of the old attempt counts, and its nodes are chosen anew."""
    if job.epoch > 0:
        restores.point(job, placement=core.placement(job), lost=(), before=job.epoch + 1)
        job.epoch += 1  # releases of the old attempt that are still on their way are refused as stale from here on
        Rank.objects.filter(job=job).update(state=Rank.State.WAITING, exit_code=None)
    told = f"The job was started again by {by}."
    Incident.objects.filter(job=job, closed_at=None).update(closed_at=clock.now(), close_reason=told)
    skipping.close(job)
    Slot.objects.filter(job=job).update(node=None)
    launch.forget_failed_prepares(job)
    job.ended_at = None


def stop(job: Job, *, by: str) -> None:
    """End a job: its ranks are stopped, its containers removed, an open recovery is cancelled. Raises DomainError."""
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job.pk)
        if job.state in Job.TERMINAL:
            raise DomainError(f"Job {job.name} is over already ({job.state}).")
        ending.stop(job, by=by, reason=f"Stopped by {by}.")


def drive(job_id: int) -> None:
    """Do the next thing that this job needs; nothing for one that is not there, as an old message may name."""
    with transaction.atomic():
        job = Job.objects.select_for_update().filter(pk=job_id).first()
        if job is None:
            return
        if job.state == Job.State.PENDING and job.start_asked_at is not None:
            _place(job)
        if job.state == Job.State.STARTING:
            _bring_up(job)
        if job.state == Job.State.WAITING and core.open_failover(job) is None:
            _go_on_if_it_does(job)
        if job.state in (Job.State.STARTING, Job.State.RUNNING):
            _complete_if_done(job)


def _place(job: Job) -> None:
    """Give every slot a node, or say how many are missing."""
    wanted = job.nodes
    found = _free_nodes(job)
    if len(found) < wanted:
        reason = f"Waiting for nodes: {len(found)} of {wanted} are free, healthy and run {job.runtime}."
        if told := not_free.sentence(job, found, clock.now()):
            reason = f"{reason} Not free: {told}."
        Job.objects.filter(pk=job.pk).exclude(state_reason=reason).update(state_reason=reason)
        return
    earlier = _earlier_nodes(job)
    free = {node.pk: node for node in found}
    kept = {index: free.pop(node) for index, node in earlier.items() if node in free}
    others = iter(free.values())
    for slot in core.slots_of(job):
        node = kept.get(slot.index) or next(others)
        Slot.objects.filter(pk=slot.pk).update(node=node)
        nodes.set_role(node.pk, NodeRole.TRAINING, why=f"It takes slot {slot.index} of job {job.name}.")
    _set_state(job, Job.State.STARTING, "Containers are made ready.")


def _earlier_nodes(job: Job) -> dict[int, int]:
    """Return slot -> node that ran it last: what it saved on its own disk can be read there and nowhere else."""
    rows = OrderRecord.objects.filter(job=job, kind=OrderKind.START).order_by("created_at")
    last = {row.payload["slot"]: row.node_id for row in rows}
    return {index: node for index, node in last.items() if list(last.values()).count(node) == 1}


def _free_nodes(job: Job) -> list[Node]:
    """Return usable nodes: those that ran the job before, those meant for training, then standbys; degraded ones last.

    Of the standbys the worst tier comes first, because it is missed least.
    """
    held = core.active_holds().values("node_id")
    free = core.free_nodes().filter(health__in=USABLE, runtime=job.runtime).exclude(pk__in=held)
    free = free.exclude(name__in=standbys.kept_free()).exclude(pk__in=maintenance.current(clock.now()))
    earlier = set(_earlier_nodes(job).values())
    locked = list(Node.objects.select_for_update().filter(pk__in=free.values("pk")).order_by("name"))
    taken = set(core.active_slots().values_list("node_id", flat=True))
    usable = [node for node in locked if node.pk not in taken]
    return sorted(
        usable,
        key=lambda node: (
            node.pk not in earlier,
            node.health != NodeHealth.HEALTHY,
            node.role_hint != NodeRole.TRAINING,
            -node.tier,
            node.name,
        ),
    )[: job.nodes]


def _set_state(job: Job, state: str, reason: str, **more: Any) -> None:
    for name, value in {"state": state, "state_reason": reason, **more}.items():
        setattr(job, name, value)
    job.save(update_fields=["state", "state_reason", *more])
    dispatch.changed("overview", f"job:{job.pk}")


def _bring_up(job: Job) -> None:
    """Prepare all containers, bring the restore point if there is one, start all ranks, await the first steps."""
    slots = core.slots_of(job)
    if not _opened(job):
        prepared = [launch.prepare(job, slot.node) for slot in slots if slot.node]
        if _failed(job, prepared) or not all(orders.succeeded(order) for order in prepared):
            return
        if not _open_epoch(job):
            return
    snapshot = _restores(job)
    if snapshot is not None and not _brought(job, snapshot):
        return
    restore = {"step": snapshot.step, "snapshot_epoch": snapshot.epoch} if snapshot else None
    started = [launch.start(slot, job=job, epoch=job.epoch, restore=restore, failover=None) for slot in slots]
    if _failed(job, started):
        return
    launch.settle_plain(job, epoch=job.epoch)
    ranks = list(job.ranks.all())
    if all(_under_way(rank, job.epoch) for rank in ranks):
        Epoch.objects.filter(job=job, number=job.epoch).update(running_at=clock.now())
        _set_state(job, Job.State.RUNNING, "")
    else:
        _give_up_when_late(job, ranks, max(order.created_at for order in started))


def _give_up_when_late(job: Job, ranks: Sequence[Rank], ordered_at: datetime) -> None:
    """A rank that hangs before its first step tells of nothing: only time shows it. An open recovery decides itself."""
    policy = conf.cluster_policy()
    limit_s = policy.start_limit_s + policy.verify_limit_s
    if (clock.now() - ordered_at).total_seconds() < limit_s or core.open_failover(job) is not None:
        return
    late = ", ".join(str(rank.rank) for rank in ranks if not _under_way(rank, job.epoch))
    ending.end(job, Job.State.FAILED, f"No first step of rank {late} within {limit_s:g} s of its start. {LATE_HINT}")


def _opened(job: Job) -> bool:
    return Epoch.objects.filter(job=job, number=job.epoch).exists()


def _restores(job: Job) -> SnapshotId | None:
    """Return the snapshot that the present attempt starts from, None for a start from nothing."""
    row = Epoch.objects.get(job=job, number=job.epoch)
    if row.restored_epoch is None or row.restored_step is None:
        return None
    return SnapshotId(row.restored_epoch, row.restored_step)


def _brought(job: Job, snapshot: SnapshotId) -> bool:
    """Return whether every node holds its shards; a snapshot that cannot be read is given up for an older one."""
    if OrderRecord.objects.filter(job=job, kind=OrderKind.START, epoch=job.epoch).exists():
        return True
    try:
        found = restores.sources_of(job, snapshot, placement=core.placement(job), lost=(), before=job.epoch)
    except NoRestorePoint:
        return _choose_anew(job)
    brought = restores.bring(job, found, epoch=job.epoch, key=f"restore:{job.pk}:start:{job.epoch}")
    if brought is None:
        return False
    for order in brought:
        restores.mark_skipped(job, order, snapshot)
        failed = not orders.is_open(order) and not orders.succeeded(order)
        if failed and restores.mark_failed(job, order, snapshot):
            return _choose_anew(job)
    return not _failed(job, brought) and all(orders.succeeded(order) for order in brought)


def _choose_anew(job: Job) -> bool:
    Epoch.objects.filter(job=job, number=job.epoch).delete()
    orders.withdraw(clock.now(), job=job, kind=OrderKind.RESTORE)
    orders.forget(OrderRecord.objects.filter(job=job, kind=OrderKind.RESTORE, epoch=job.epoch))
    return False


def _under_way(rank: Rank, epoch: int) -> bool:
    return rank.first_step_epoch == epoch or (rank.state == Rank.State.EXITED and rank.epoch == epoch)


def _open_epoch(job: Job) -> bool:
    """Choose what the attempt starts from; the job fails when nothing of what it saved can be read."""
    now, first = clock.now(), job.epoch == 0
    number = max(job.epoch, 1)
    try:
        found = restores.point(job, placement=core.placement(job), lost=(), before=number)
    except NoRestorePoint as error:
        ending.end(job, Job.State.FAILED, f"{error.message} {error.hint}".strip())
        return False
    _set_state(job, Job.State.STARTING, "Ranks are started.", epoch=number, started_at=job.started_at or now)
    reason = "First start." if first else "Started again."
    restores.open_epoch(job, number, snapshot=found.snapshot if found else None, reason=reason, now=now)
    return True


def _failed(job: Job, given: Sequence[OrderRecord]) -> bool:
    """End the job when a node could not do its part, with what it said and what to do about it."""
    for order in given:
        if not orders.is_open(order) and not orders.succeeded(order):
            error = orders.error_of(order)
            told = (
                f"Node {order.node.name} could not {order.kind} ({error['code']}): {error['message']} {error['hint']}"
            )
            ending.end(job, Job.State.FAILED, told.strip())
            return True
    return False


def warm_standbys(job: Job) -> None:
    """Have the job's container made ready on every free standby; a standby that cannot is only noted."""
    held = core.active_holds().values("node_id")
    free = core.free_nodes().filter(runtime=job.runtime, health__in=USABLE).exclude(pk__in=held)
    for node in free.order_by("tier", "name"):
        launch.prepare(job, node)


def _go_on_if_it_does(job: Job) -> None:
    """A job that waits for a person runs again once every rank has stepped since it began to wait."""
    decided = Failover.objects.filter(job=job).aggregate(at=Max("ended_at"))["at"]
    found = core.incidents_of(job).aggregate(at=Max("opened_at"))["at"]
    since = max((at for at in (decided, found) if at is not None), default=job.created_at)
    if not core.all_step_on(job, since=since):
        return
    told = "Training goes on by itself: every rank has made a step since."
    core.incidents_of(job).filter(closed_at=None).update(closed_at=clock.now(), close_reason=told)
    AttemptEnd.objects.filter(job=job, number=job.epoch).delete()  # it has not ended after all
    _set_state(job, Job.State.RUNNING, "")


def _complete_if_done(job: Job) -> None:
    """A job is complete when every rank of the present attempt has ended well."""
    if job.epoch > 0 and core.all_finished(job):
        ending.end(job, Job.State.COMPLETED, "All ranks finished.")


def open_jobs() -> list[int]:
    """Return the jobs that are not over and were asked to start."""
    rows = Job.objects.exclude(state__in=Job.TERMINAL).exclude(start_asked_at=None)
    return list(rows.order_by("pk").values_list("pk", flat=True))
