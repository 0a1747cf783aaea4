"""Does every node of a job that wants it keep its neighbour's newest shards in memory?

The pairing follows from the slots alone and is made anew whenever it is looked at. Orders are keyed by attempt, by the
lives of both agents and by a stretch of time, so that one that is lost is given again and one that is done is not.
"""

import secrets
from datetime import datetime, timedelta

from django.db.models import Q

from reliability.domain.health import NodeHealth
from reliability.domain.orders import OrderKind
from reliability.domain.partners import Pair, Pairing, Place, pair
from reliability.models import Job, Node, OrderRecord
from reliability.selectors import core
from reliability.services import boundary, orders

STRETCH_S = 600.0
"""A token is good for one stretch and the next, in which there is a new one."""
AGAIN_S = 15.0
"""After so long an order that failed is given again."""


def keep_all(now: datetime) -> None:
    """Have the partners of all running jobs keep their copies."""
    for job in Job.objects.filter(partner_copies=True, state=Job.State.RUNNING):
        boundary.apart("Pairing partners", keep, job, now, job=job.pk)


def pairing(job: Job) -> Pairing:
    """Return who keeps whose shards."""
    places = [
        Place(slot=slot.index, node=slot.node.name, domain=slot.node.failure_domain)
        for slot in core.slots_of(job)
        if slot.node
    ]
    return pair(places)


def keep(job: Job, now: datetime) -> None:
    """Have each node serve its newest shards to its partner, and the partner keep them."""
    nodes = {slot.node.name: slot.node for slot in core.slots_of(job) if slot.node}
    ranks = {slot.node.name: slot.index for slot in core.slots_of(job) if slot.node}
    for each in pairing(job).pairs:
        owner, keeper = nodes[each.owner], nodes[each.keeper]
        if NodeHealth.UNREACHABLE in (owner.health, keeper.health):
            continue
        first = ranks[owner.name] * job.ranks_per_node
        _keep(job, each, owner, keeper, list(range(first, first + job.ranks_per_node)), now)


def _keep(job: Job, each: Pair, owner: Node, keeper: Node, ranks: list[int], now: datetime) -> None:
    stretch = int(now.timestamp() // STRETCH_S)
    key = f"partner:{job.pk}:{job.epoch}:{each.owner}:{owner.incarnation}:{stretch}"
    _forget_failed(key, now)
    serving = orders.issue(
        owner,
        kind=OrderKind.PEER_SERVE,
        key=key,
        payload={
            "token": secrets.token_hex(32),
            "limit_s": 2 * STRETCH_S,
            "hold": False,
            "shards": [],
            "ranks": ranks,
        },
        job=job,
        epoch=job.epoch,
    )
    if not orders.succeeded(serving):
        return
    peer = {
        "node": owner.name,
        "address": owner.address,
        "port": (serving.result.get("result") or {}).get("port"),
        "token": serving.payload["token"],
        "ranks": ranks,
    }
    key = f"{key}:kept:{each.keeper}:{keeper.incarnation}"
    _forget_failed(key, now)
    orders.issue(
        keeper,
        kind=OrderKind.PARTNER_KEEP,
        key=key,
        payload={"peer": peer, "limit_s": 2 * STRETCH_S, "bytes_per_s": job.partner_bytes_per_s},
        job=job,
        epoch=job.epoch,
    )


def _forget_failed(key: str, now: datetime) -> None:
    """What could not be done is tried again after a while."""
    failed = Q(state__in=(OrderRecord.State.FAILED, OrderRecord.State.EXPIRED, OrderRecord.State.REFUSED))
    orders.forget(OrderRecord.objects.filter(failed, key=key, ended_at__lt=now - timedelta(seconds=AGAIN_S)))
