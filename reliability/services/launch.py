"""Which orders bring a job's containers and ranks up on a node, and which end them?

Both the first start of a job and every recovery use these, so that a container is described in one place.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from reliability import conf
from reliability.domain.orders import OrderKind
from reliability.models import Epoch, Failover, Job, Node, OrderRecord, Rank, Slot
from reliability.selectors import core
from reliability.services import orders

PORT_SPREAD = 50
"""Epochs use ports in turn, so that a new attempt never meets a listener of the old one."""
RELEASE_TTL_S = 3600.0
PLAIN_SETTLED_S = 5.0
"""A plain program reports no steps: it counts as running when it has lived this long after its start was done."""


def container(job: Job) -> dict[str, Any]:
    """Return the container of this job as an order describes it."""
    limits = job.resources or {}
    return {
        "image": job.image,
        "program": job.program,
        "mode": job.mode,
        "preload": job.preload,
        "env": job.env,
        "workdir": job.workdir,
        "mounts": job.mounts,
        "memory_bytes": int(limits.get("memory_bytes") or 0),
        "cpus": float(limits.get("cpus") or 0),
        "shm_bytes": int(limits.get("shm_bytes") or 0),
        "snapshot_folder": job.snapshot_folder,
    }


def prepare(job: Job, node: Node) -> OrderRecord:
    """Have the job's container made ready on a node, once per life of its agent."""
    return orders.issue(
        node,
        kind=OrderKind.PREPARE,
        key=core.prepare_key(job, node),
        payload={"container": container(job)},
        job=job,
        epoch=job.epoch,
        ttl_s=conf.cluster_policy().start_limit_s,
    )


def forget_failed_prepares(job: Job) -> None:
    """Let nodes that could not make the container ready be asked again."""
    orders.forget(OrderRecord.objects.filter(job=job, kind=OrderKind.PREPARE))


def container_gone(job: Job, node: Node) -> None:
    """The job's container is not on the node any more: it is not warm, and may be asked to be made ready again."""
    orders.forget(OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.PREPARE))


def start(
    slot: Slot, *, job: Job, epoch: int, restore: Mapping[str, int] | None, failover: Failover | None
) -> OrderRecord:
    """Start the ranks of a slot for an epoch; asked twice for the same slot and epoch it is done once."""
    if slot.node is None:
        raise ValueError(f"slot {slot} has no node to start on")
    return orders.issue(
        slot.node,
        kind=OrderKind.START,
        key=f"start:{job.pk}:{epoch}:{slot.index}",
        payload=start_payload(slot, job=job, epoch=epoch, restore=restore),
        job=job,
        epoch=epoch,
        failover=failover,
        ttl_s=conf.cluster_policy().start_limit_s,
    )


def start_payload(slot: Slot, *, job: Job, epoch: int, restore: Mapping[str, int] | None) -> dict[str, Any]:
    """Return what a start order carries (docs/protocol.md section 2)."""
    first = Slot.objects.select_related("node").get(job=job, index=0).node
    return {
        "container": container(job),
        "slot": slot.index,
        "ranks": local_ranks(job, slot),
        "world_size": job.world_size,
        "nodes": job.nodes,
        "master_addr": first.address if first else "",
        "master_port": job.master_port + epoch % PORT_SPREAD,
        "restore": dict(restore) if restore else None,
        "period_plan": job.period_plan,
        "plan_version": job.period_version,
        "lease_rule": job.lease_rule,
        "storage_dir": job.storage_dir,
        "job_key": key_of(job),
        "skip_steps": _skip_steps(job, epoch),
    }


def _skip_steps(job: Job, epoch: int) -> list[int]:
    """Return what the attempt's row says that all ranks leave out: the same for every node of it."""
    told = Epoch.objects.filter(job=job, number=epoch).values_list("skip_steps", flat=True).first()
    return list(told or ())


def note_skips_read(job: Job, rank: Rank) -> None:
    """Keep that a rank of the present attempt asked which batches to skip."""
    row = Epoch.objects.select_for_update().filter(job=job, number=job.epoch).first()
    if row is not None and rank.rank not in row.skip_read_by:
        row.skip_read_by = sorted([*row.skip_read_by, rank.rank])
        row.save(update_fields=["skip_read_by"])


def key_of(job: Job) -> str:
    """Return what tells this job from another of its name, in this installation or in any other."""
    return hashlib.sha256(f"{job.pk}:{job.name}:{job.created_at.isoformat()}".encode()).hexdigest()[:24]


def settle_plain(job: Job, *, epoch: int) -> None:
    """Mark the ranks of a plain program as under way once their node was heard long enough after their start.

    A program that Stepkeeper only watches tells of no first step; that no end was reported stands in its place.
    """
    if job.mode != Job.Mode.PLAIN:
        return
    ended = (Rank.State.EXITED, Rank.State.FAILED)
    for slot in core.slots_of(job):
        if _lived(slot, job, epoch):
            waiting = Rank.objects.filter(slot=slot).exclude(first_step_epoch=epoch).exclude(state__in=ended)
            waiting.update(first_step_epoch=epoch, first_step=None, epoch=epoch, state=Rank.State.RUNNING)


def _lived(slot: Slot, job: Job, epoch: int) -> bool:
    """Return whether the node said that it still runs this attempt, long enough after the start was done."""
    done_at = _started_at(slot, job, epoch)
    if slot.node is None or slot.node.last_seen_at is None or done_at is None:
        return False
    told = slot.node.containers.get(job.name) or {}
    settled = slot.node.last_seen_at - done_at >= timedelta(seconds=PLAIN_SETTLED_S)
    return settled and told.get("container") == "running" and told.get("epoch") == epoch


def _started_at(slot: Slot, job: Job, epoch: int) -> datetime | None:
    started = OrderRecord.objects.filter(key=f"start:{job.pk}:{epoch}:{slot.index}", state=OrderRecord.State.DONE)
    return started.values_list("ended_at", flat=True).first()


def local_ranks(job: Job, slot: Slot) -> list[dict[str, int]]:
    """Return the ranks of a slot with their places on the node."""
    first = slot.index * job.ranks_per_node
    return [{"rank": first + local, "local_rank": local} for local in range(job.ranks_per_node)]


def stop(node: Node, *, job: Job, epoch: int, key: str, failover: Failover | None = None) -> OrderRecord:
    """End all ranks of epochs below `epoch` on a node at once; its launcher stays warm."""
    return orders.issue(
        node,
        kind=OrderKind.STOP,
        key=key,
        payload={"grace_s": 0},
        job=job,
        epoch=epoch,
        failover=failover,
        ttl_s=conf.cluster_policy().order_ttl_s,
    )


def release(node: Node, *, job: Job, epoch: int) -> OrderRecord:
    """End and remove the job's container on a node; kept open long, because the node may be away."""
    container_gone(job, node)
    asked = int(job.start_asked_at.timestamp()) if job.start_asked_at else 0
    return orders.issue(
        node,
        kind=OrderKind.RELEASE,
        key=f"release:{job.pk}:{epoch}:{asked}:{node.name}",
        payload={},
        job=job,
        epoch=epoch,
        ttl_s=RELEASE_TTL_S,
    )


def release_everywhere(job: Job) -> list[Node]:
    """Release the job on every node that has, or was asked to have, its container; returns these nodes."""
    told = OrderRecord.objects.filter(job=job, kind__in=(OrderKind.PREPARE, OrderKind.START)).values("node_id")
    found = list(Node.objects.filter(pk__in=told))
    for node in found:
        release(node, job=job, epoch=job.epoch)
    return found
