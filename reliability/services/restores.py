"""From which snapshot does an attempt start, and is each shard of it brought to its node?

Recoveries and the second start of a job use the same: the choice, the row of the epoch, the orders, the marks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reliability import conf
from reliability.domain import program_folders, restore
from reliability.domain.orders import OrderKind
from reliability.domain.parts import Replica
from reliability.domain.restore import RestorePoint
from reliability.domain.snapshots import Copy, SnapshotId, Tier
from reliability.errors import NoRestorePoint
from reliability.models import Epoch, Failover, Job, Node, OrderRecord, Slot
from reliability.selectors import attempts, core, ledger
from reliability.services import clock, launch, orders, parts, peers, snapshots
from reliability.services.peers import Served
from reliability.tiers.shards import Shard

WORTH_S = 600.0
MOST_PEERS = 3
"""So many sources of one rank on other nodes are made ready to be read."""


def point(job: Job, *, placement: Mapping[int, str], lost: Sequence[str], before: int) -> RestorePoint | None:
    """Return where an attempt starts from; None means from nothing, which is right only while little would be lost.

    Raises NoRestorePoint when none can be read though a snapshot was once complete on storage, or has been durable for
    WORTH_S on SSDs of which one is away: to begin anew would give that work up, and its node may come back.
    """
    try:
        return _choose(job, ledger.copies_of(job, before=before), placement, lost, before)
    except NoRestorePoint:
        long_ago = clock.now() - timedelta(seconds=WORTH_S)
        if core.once_complete(job, tier=Tier.STORAGE) or core.durable_since(job, long_ago):
            raise
        return None


def sources_of(
    job: Job, snapshot: SnapshotId, *, placement: Mapping[int, str], lost: Sequence[str], before: int
) -> RestorePoint:
    """Return where each rank reads a snapshot that was chosen before. Raises NoRestorePoint when one cannot."""
    return _choose(job, ledger.copies_of_one(job, snapshot), placement, lost, before)


def _choose(
    job: Job, copies: Iterable[Copy], placement: Mapping[int, str], lost: Sequence[str], before: int
) -> RestorePoint:
    if program_folders.is_shared(job.snapshot_folder) and job.nodes > 1:  # every node reads the shards of all ranks
        copies = [copy for copy in copies if copy.tier is Tier.STORAGE]
    return restore.choose(
        copies,
        starts=core.epoch_starts(job, before=before),
        placement=placement,
        lost_nodes=lost,
        distrusted=core.distrusted(job),
        ranks=job.world_size,
        parts=parts.of(job),
        serving=peers.able_to_serve(job, lost=lost),
    )


def open_epoch(job: Job, number: int, *, snapshot: SnapshotId | None, reason: str, now: datetime) -> None:
    """Write down what an epoch restores, before anything is started in it."""
    values: dict[str, Any] = {
        "reason": reason,
        "restored_epoch": snapshot.epoch if snapshot else None,
        "restored_step": snapshot.step if snapshot else None,
    }
    if not Epoch.objects.filter(job=job, number=number).exists():
        values["skip_steps"] = attempts.skipped_steps(job)  # chosen once: every node of the attempt is told the same
    Epoch.objects.update_or_create(
        job=job, number=number, defaults=values, create_defaults={**values, "started_at": now}
    )
    snapshots.lower_storage_step(job, snapshot.step if snapshot else None)


def bring(
    job: Job, found: RestorePoint, *, epoch: int, key: str, failover: Failover | None = None
) -> list[OrderRecord] | None:
    """Have every slot's node fetch and verify the shards of its ranks, once for each key.

    Where a rank's best source lies on another node, that node is asked to serve it first: None until all of these
    have answered. One that did not is not among the sources when they are asked for the next time.
    """
    snapshot = found.snapshot
    key = f"{key}:{snapshot.epoch}-{snapshot.step}"
    slots = [(slot, slot.node) for slot in core.slots_of(job) if slot.node]
    keys = [f"{key}:{slot.index}:{node.name}" for slot, node in slots]
    given = list(OrderRecord.objects.filter(key__in=keys).select_related("node"))
    if len(given) == len(keys):
        return given
    homes = {each["rank"]: node.name for slot, node in slots for each in launch.local_ranks(job, slot)}
    served = peers.serve(job, lent(found.sources, homes), epoch=epoch, key=key, failover=failover)
    if not served.complete:
        return None
    restoring = _Restoring(job, found, served, epoch, failover)
    return [restoring.order(slot, node, own) for (slot, node), own in zip(slots, keys, strict=True)]


def lent(sources: Mapping[int, Sequence[Copy]], homes: Mapping[int, str]) -> dict[str, set[tuple[str, str]]]:
    """Return node -> {(tier, key)} of what nodes must let others read; `homes` names the node of each rank.

    A rank whose best source lies on its own node or on storage asks nobody.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for rank, copies in sources.items():
        if not copies or not _is_remote(copies[0], homes.get(rank, "")):
            continue
        remote = [copy for copy in copies if _is_remote(copy, homes.get(rank, ""))]
        for copy in remote[:MOST_PEERS]:
            found.setdefault(copy.node, set()).add((copy.tier.value, _key(copy)))
    return found


def _is_remote(copy: Copy, home: str) -> bool:
    return copy.tier is not Tier.STORAGE and copy.node != home


def _key(copy: Copy) -> str:
    """Return the key of the file that is read: for a shard that is put together, the lender's."""
    rank = copy.lender.rank if isinstance(copy, Replica) else copy.rank
    return Shard(copy.snapshot.epoch, copy.snapshot.step, rank).flat_key


@dataclass(frozen=True)
class _Restoring:
    """What the restore orders of one attempt have in common."""

    job: Job
    found: RestorePoint
    served: Served
    epoch: int
    failover: Failover | None

    def order(self, slot: Slot, node: Node, key: str) -> OrderRecord:
        """Have a node bring the shards of a slot's ranks into its memory."""
        snapshot, sources = self.found.snapshot, self.found.sources
        local = [each["rank"] for each in launch.local_ranks(self.job, slot)]
        ranks = sorted(sources) if program_folders.is_shared(self.job.snapshot_folder) else local
        heads = parts.heads(self.job, snapshot, [rank for rank in ranks if _may_be_made(sources[rank])])
        wanted = [{"rank": rank, "sources": _sources(sources[rank], node, self.served, heads)} for rank in ranks]
        return orders.issue(
            node,
            kind=OrderKind.RESTORE,
            key=key,
            payload={
                "step": snapshot.step,
                "snapshot_epoch": snapshot.epoch,
                "ranks": wanted,
                "snapshot_folder": self.job.snapshot_folder,
                "local_ranks": local,
                "job_key": launch.key_of(self.job),
                "world_size": self.job.world_size,
            },
            job=self.job,
            epoch=self.epoch,
            failover=self.failover,
            ttl_s=conf.cluster_policy().restore_limit_s,
        )


def _may_be_made(copies: Iterable[Copy]) -> bool:
    return any(isinstance(copy, Replica) for copy in copies)


def _sources(copies: Iterable[Copy], node: Node, served: Served, heads: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the sources of a rank as an order names them, without those that nobody lets this node read."""
    told = []
    for copy in copies:
        source: dict[str, Any] = {
            "tier": copy.tier,
            "path": copy.path,
            "digest": copy.digest,
            "size_bytes": copy.size_bytes,
            "node": copy.node,
        }
        if _is_remote(copy, node.name):
            peer = served.peer(copy.node, copy.tier, _key(copy))
            if peer is None:
                continue
            source["peer"] = peer
        if isinstance(copy, Replica):
            if copy.rank not in heads:
                continue
            source["replica"] = _replica(copy, heads[copy.rank])
        told.append(source)
    return told


def _replica(copy: Replica, head: str) -> dict[str, Any]:
    return {
        "rank": copy.lender.rank,
        "digest": copy.lender.digest,
        "lender_shared_at": copy.lender_shared_at,
        "shared_at": copy.shared_at,
        "shared_bytes": copy.shared_bytes,
        "head": head,
    }


def mark_skipped(job: Job, order: OrderRecord, snapshot: SnapshotId) -> None:
    """A copy that was passed over for a slower one was no good either; the one that was used was read whole."""
    if not orders.succeeded(order) or order.kind != OrderKind.RESTORE:
        return
    brought = (order.result.get("result") or {}).get("ranks") or []
    for each in brought:
        _mark(job, order, snapshot, [{**skip, "rank": each.get("rank")} for skip in each.get("skipped") or []])
    own = [each for each in brought if isinstance(each.get("rank"), int) and not each.get("from")]
    snapshots.mark_read(job, snapshot, [(each["rank"], str(each.get("tier"))) for each in own], node=order.node)


def mark_failed(job: Job, order: OrderRecord, snapshot: SnapshotId) -> int:
    """Mark the copies because of which an order failed. Returns how many; 0 means that no copy was to blame."""
    return _mark(job, order, snapshot, (order.result.get("result") or {}).get("bad") or [])


def _mark(job: Job, order: OrderRecord, snapshot: SnapshotId, problems: Iterable[Mapping[str, Any]]) -> int:
    """Mark what a node could not use: its own copies and storage's, and of other nodes only what its order named."""
    own, marked = [], 0
    for problem in problems:
        if not problem.get("from"):
            own.append(problem)
        else:
            marked += _mark_lent(job, order, snapshot, problem)
    return marked + snapshots.mark_bad(job, snapshot, own, node=order.node, before=order.created_at)


def _mark_lent(job: Job, order: OrderRecord, snapshot: SnapshotId, problem: Mapping[str, Any]) -> int:
    """Another node's copy was no good, or that node could not be read from: then it serves nothing more here."""
    lender = problem["from"] if isinstance(problem["from"], Mapping) else {}
    node = Node.objects.filter(name=str(lender.get("node"))).first()
    if node is None or not _was_named(order, problem, lender):
        return 0
    if str(problem.get("code")) in snapshots.NO_FAULT_OF_THE_COPY:
        return peers.give_up(job, node, epoch=order.epoch, reason=str(problem.get("message", "")))
    if str(problem.get("code")) == "replica_mismatch":
        return parts.forget_head(job, snapshot, int(problem["rank"]))
    bad = {**problem, "rank": lender.get("rank"), "message": f"{order.node.name} said: {problem.get('message')}"}
    return snapshots.mark_bad(job, snapshot, [bad], node=node)


def _was_named(order: OrderRecord, problem: Mapping[str, Any], lender: Mapping[str, Any]) -> bool:
    """Return whether the order had the node read this copy from that other node."""
    for each in order.payload.get("ranks") or []:
        for source in each.get("sources") or []:
            rank = (source.get("replica") or {}).get("rank", each.get("rank"))
            if (each.get("rank"), source.get("tier"), source.get("node"), rank) == (
                problem.get("rank"), problem.get("tier"), lender.get("node"), lender.get("rank"),
            ):  # fmt: skip
                return True
    return False
