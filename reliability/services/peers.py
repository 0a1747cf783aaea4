"""Which nodes let others read the shards they hold, and how does a node that restores know where and with what proof?

A node serves what one signed order names, for one attempt and a limited time; whoever restores gets the same token in
its own signed order. A node that does not answer, or cannot be read from, serves nothing more in that attempt.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from reliability import conf
from reliability.domain.health import SERVING
from reliability.domain.orders import OrderKind
from reliability.models import Failover, Job, Node, OrderRecord
from reliability.services import clock, orders

ANSWER_LIMIT_S = 8.0
SLACK_S = 30.0
GAVE_UP = (OrderRecord.State.FAILED, OrderRecord.State.REFUSED, OrderRecord.State.EXPIRED)


@dataclass(frozen=True)
class Served:
    """What other nodes let be read: node -> how to read it. `complete` once every node that was asked serves."""

    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shards: Mapping[str, Collection[tuple[str, str]]] = field(default_factory=dict)
    complete: bool = True

    def peer(self, node: str, tier: str, key: str) -> Mapping[str, Any] | None:
        """Return where and with what token a node serves a shard; None when it does not."""
        return self.peers.get(node) if (str(tier), key) in self.shards.get(node, ()) else None


def able_to_serve(job: Job, *, lost: Collection[str]) -> set[str]:
    """Return the nodes that are heard, are not lost, and did not fail to serve this job's newest attempt."""
    now = clock.now()
    heard = now - timedelta(seconds=conf.cluster_policy().silence_s)
    alive = Node.objects.filter(health__in=SERVING, last_seen_at__gt=heard)
    failed = OrderRecord.objects.filter(job=job, kind=OrderKind.PEER_SERVE, epoch__gte=job.epoch, state__in=GAVE_UP)
    return set(alive.exclude(name__in=list(lost)).exclude(pk__in=failed.values("node")).values_list("name", flat=True))


def serve(
    job: Job, wanted: Mapping[str, Collection[tuple[str, str]]], *, epoch: int, key: str, failover: Failover | None
) -> Served:
    """Have nodes serve shards, {node: {(tier, key)}}, once for each key; return what they serve so far."""
    limit_s = conf.cluster_policy().restore_limit_s + SLACK_S
    asked = []
    for node in Node.objects.filter(name__in=list(wanted)).order_by("name"):
        shards = [{"tier": tier, "key": name} for tier, name in sorted(wanted[node.name])]
        asked.append(
            orders.issue(
                node,
                kind=OrderKind.PEER_SERVE,
                key=f"{key}:serve:{node.name}:{_summary(shards)}",
                payload={"token": secrets.token_hex(32), "limit_s": limit_s, "hold": True, "shards": shards},
                job=job,
                epoch=epoch,
                failover=failover,
                ttl_s=ANSWER_LIMIT_S,
            )
        )
    ready = {order.node.name: order for order in asked if orders.succeeded(order)}
    return Served(
        {name: _peer(order) for name, order in ready.items()},
        {name: {(each["tier"], each["key"]) for each in order.payload["shards"]} for name, order in ready.items()},
        complete=ready.keys() >= wanted.keys(),
    )


def _summary(shards: object) -> str:
    return hashlib.sha256(json.dumps(shards).encode()).hexdigest()[:12]


def _peer(order: OrderRecord) -> dict[str, Any]:
    port = (order.result.get("result") or {}).get("port")
    return {"address": order.node.address, "port": port, "token": order.payload["token"]}


def give_up(job: Job, node: Node, *, epoch: int, reason: str) -> int:
    """A node could not be read from: it serves nothing more in this attempt. Returns 1 when that is news."""
    told = {"result": {}, "error": {"code": "tier_unreachable", "message": reason[:1000], "hint": ""}}
    rows = OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.PEER_SERVE, epoch=epoch)
    return min(rows.filter(state=OrderRecord.State.DONE).update(state=OrderRecord.State.FAILED, result=told), 1)
