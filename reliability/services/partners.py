"""Does every node of a job that wants it keep its neighbour's newest shards in memory?

The pairing follows from the slots alone and is made anew whenever it is looked at. Orders are keyed by attempt, by the
lives of both agents, by what the keeper keeps in all and by a stretch of time, so that one that is lost is given again
and one that is done is not. A look at a job costs two queries, however many pairs it has, while nothing is to be told.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from reliability.domain.health import NodeHealth
from reliability.domain.orders import OrderKind
from reliability.domain.partners import Pair
from reliability.models import Job, Node, OrderRecord
from reliability.selectors import core
from reliability.selectors.partners import pairing_of
from reliability.services import boundary, orders

STRETCH_S = 1800.0
"""A token is good for one stretch and the next, in which there is a new one. A shard must come whole within one."""
AGAIN_S = 15.0
"""After so long an order that failed is given again."""
GAVE_UP = (OrderRecord.State.FAILED, OrderRecord.State.EXPIRED, OrderRecord.State.REFUSED)


@dataclass(frozen=True, kw_only=True)
class _Keeping:
    """One pair with the ranks of its owner, and the ranks of all whose shards the keeper keeps."""

    job: Job
    owner: Node
    keeper: Node
    ranks: tuple[int, ...]
    kept_ranks: tuple[int, ...]
    stretch: int

    @property
    def serve_key(self) -> str:
        """What the owner is told has this key."""
        life = _short(self.owner.incarnation)
        return f"partner:{self.job.pk}:{self.job.epoch}:{self.owner.name}:{self.stretch}:{life}"

    @property
    def keep_key(self) -> str:
        """What the keeper is told has this key."""
        return f"{self.serve_key}:kept:{_short(self.keeper.name, self.keeper.incarnation, self.kept_ranks)}"


def _short(*what: object) -> str:
    """Return what stands for names and lives in a key: written out, two of them could be longer than a key may be."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def keep_all(now: datetime) -> None:
    """Have the partners of all running jobs keep their copies."""
    for job in Job.objects.filter(partner_copies=True, state=Job.State.RUNNING):
        boundary.apart("Pairing partners", keep, job, now, job=job.pk)


def keep(job: Job, now: datetime) -> None:
    """Have each node serve its newest shards to its partner, and the partner keep them."""
    wanted = _wanted(job, now)
    known = _known([key for each in wanted for key in (each.serve_key, each.keep_key)], now)
    for each in wanted:
        serving = known.get(each.serve_key) or _serve(each)
        if orders.succeeded(serving) and each.keep_key not in known:
            _keep(each, serving)


def _wanted(job: Job, now: datetime) -> list[_Keeping]:
    """Return the pairs of which both nodes are heard; what is kept of one that is silent stays."""
    slots = [slot for slot in core.slots_of(job) if slot.node]
    nodes = {slot.node.name: slot.node for slot in slots if slot.node}
    ranks = {slot.node.name: _ranks(job, slot.index) for slot in slots if slot.node}
    pairs = pairing_of(slots).pairs
    return [
        _Keeping(
            job=job,
            owner=nodes[each.owner],
            keeper=nodes[each.keeper],
            ranks=ranks[each.owner],
            kept_ranks=_kept_ranks(pairs, ranks, each.keeper),
            stretch=int(now.timestamp() // STRETCH_S),
        )
        for each in pairs
        if NodeHealth.UNREACHABLE not in (nodes[each.owner].health, nodes[each.keeper].health)
    ]


def _ranks(job: Job, slot: int) -> tuple[int, ...]:
    return tuple(range(slot * job.ranks_per_node, (slot + 1) * job.ranks_per_node))


def _kept_ranks(pairs: Iterable[Pair], ranks: dict[str, tuple[int, ...]], keeper: str) -> tuple[int, ...]:
    return tuple(sorted(rank for each in pairs if each.keeper == keeper for rank in ranks[each.owner]))


def _known(keys: list[str], now: datetime) -> dict[str, OrderRecord]:
    """Return the orders of these keys; what could not be done a while ago is forgotten, and told again."""
    known = {order.key: order for order in OrderRecord.objects.filter(key__in=keys)}
    failed = [order for order in known.values() if _is_to_be_tried_again(order, now)]
    if failed:
        orders.forget(OrderRecord.objects.filter(pk__in=[order.pk for order in failed]))
    return {key: order for key, order in known.items() if order not in failed}


def _is_to_be_tried_again(order: OrderRecord, now: datetime) -> bool:
    return order.state in GAVE_UP and order.ended_at is not None and order.ended_at < now - timedelta(seconds=AGAIN_S)


def _serve(each: _Keeping) -> OrderRecord:
    return orders.issue(
        each.owner,
        kind=OrderKind.PEER_SERVE,
        key=each.serve_key,
        payload={
            "token": secrets.token_hex(32),
            "limit_s": 2 * STRETCH_S,
            "hold": False,
            "shards": [],
            "ranks": list(each.ranks),
        },
        job=each.job,
        epoch=each.job.epoch,
    )


def _keep(each: _Keeping, serving: OrderRecord) -> OrderRecord:
    peer = {
        "node": each.owner.name,
        "address": each.owner.address,
        "port": (serving.result.get("result") or {}).get("port"),
        "token": serving.payload["token"],
        "ranks": list(each.ranks),
    }
    return orders.issue(
        each.keeper,
        kind=OrderKind.PARTNER_KEEP,
        key=each.keep_key,
        payload={
            "peer": peer,
            "kept_ranks": list(each.kept_ranks),
            "limit_s": 2 * STRETCH_S,
            "bytes_per_s": each.job.partner_bytes_per_s,
        },
        job=each.job,
        epoch=each.job.epoch,
    )
