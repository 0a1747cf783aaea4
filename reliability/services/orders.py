"""What was each node told to do, did it answer, and what must be sent again?

An order row is made once per `key`; each sending carries the same id with a new nonce. The broker is only the fast
way: what is not answered after RESEND_S goes with the answer to the node's next batch.
"""

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet

from reliability import conf
from reliability.domain import answers
from reliability.domain.orders import Order, OrderKind, derive_key, seal
from reliability.models import Failover, Job, Node, OrderRecord
from reliability.services import clock, dispatch

RESEND_S = 2.0
ANSWERED = (OrderRecord.State.DONE, OrderRecord.State.FAILED, OrderRecord.State.REFUSED)


def order_key(node: Node) -> str:
    """Return the key with which orders to this node are sealed."""
    return derive_key(settings.SECRET_KEY, node.name, node.key_generation)


def issue(
    node: Node,
    *,
    kind: OrderKind,
    key: str,
    payload: Mapping[str, Any],
    job: Job | None = None,
    epoch: int = 0,
    failover: Failover | None = None,
    ttl_s: float | None = None,
) -> OrderRecord:
    """Return the order of this key, made and sent if it is new."""
    now = clock.now()
    ttl = ttl_s or conf.cluster_policy().order_ttl_s
    order, created = OrderRecord.objects.get_or_create(
        key=key,
        defaults={
            "node": node,
            "job": job,
            "failover": failover,
            "kind": kind,
            "epoch": epoch,
            "payload": dict(payload),
            "created_at": now,
            "sent_at": now,
            "sendings": 1,
            "expires_at": now + timedelta(seconds=ttl),
        },
    )
    if created:
        dispatch.order(node.name, envelope(order, node, now), expires=ttl)
    return order


def envelope(order: OrderRecord, node: Node, now: datetime) -> dict[str, str]:
    """Return the order sealed for one sending."""
    return seal(
        Order(
            id=str(order.pk),
            kind=OrderKind(order.kind),
            node=node.name,
            nonce=secrets.token_hex(16),
            issued_at=now.timestamp(),
            expires_at=order.expires_at.timestamp(),
            job=order.job.name if order.job else "",
            epoch=order.epoch,
            payload=order.payload,
        ),
        key=order_key(node),
    )


def overdue(node: Node, now: datetime) -> list[dict[str, str]]:
    """Return envelopes, sealed anew, of the orders that this node has not answered for RESEND_S."""
    waiting = list(
        OrderRecord.objects.filter(
            node=node,
            state=OrderRecord.State.PENDING,
            expires_at__gt=now,
            sent_at__lt=now - timedelta(seconds=RESEND_S),
        ).select_related("job")[:50]
    )
    if waiting:
        OrderRecord.objects.filter(pk__in=[order.pk for order in waiting]).update(
            sent_at=now, sendings=F("sendings") + 1
        )
    return [envelope(order, node, now) for order in waiting]


def expire(now: datetime) -> int:
    """Mark orders whose time is over. Returns how many. A late answer is still taken."""
    return OrderRecord.objects.filter(state=OrderRecord.State.PENDING, expires_at__lte=now).update(
        state=OrderRecord.State.EXPIRED, ended_at=now
    )


def withdraw(now: datetime, **which: Any) -> int:
    """Take back orders that were not answered yet, so that they are not sent again."""
    return OrderRecord.objects.filter(state=OrderRecord.State.PENDING, **which).update(
        state=OrderRecord.State.EXPIRED, ended_at=now
    )


def forget(rows: QuerySet[OrderRecord]) -> None:
    """Free the keys of answered orders, so that the same can be ordered again."""
    for order in rows.exclude(state=OrderRecord.State.PENDING).exclude(key__endswith=":past"):
        OrderRecord.objects.filter(pk=order.pk).update(key=f"{order.kind}:{order.pk}:past")


def find(node: Node, order_id: str) -> OrderRecord | None:
    """Return the order of this id if it was given to this node."""
    try:
        return OrderRecord.objects.select_related("job", "failover").filter(pk=order_id, node=node).first()
    except (ValidationError, ValueError):
        return None


def record_result(node: Node, body: Mapping[str, Any], *, at: datetime) -> OrderRecord | None:
    """Keep a node's answer to an order; the first answer counts. Returns the order, None when it is not known."""
    order = find(node, body["order"])
    if order is None:
        return None
    state = {"done": OrderRecord.State.DONE, "failed": OrderRecord.State.FAILED}.get(
        body["status"], OrderRecord.State.REFUSED
    )
    open_states = (OrderRecord.State.PENDING, OrderRecord.State.EXPIRED)
    answer = {"result": answers.readable(order.kind, body.get("result")), "error": body.get("error")}
    OrderRecord.objects.filter(pk=order.pk, state__in=open_states).update(state=state, result=answer, ended_at=at)
    order.refresh_from_db(fields=["state", "result", "ended_at"])
    return order


def error_of(order: OrderRecord) -> dict[str, str]:
    """Return code, message and hint of an order that did not succeed, in words also when nothing was answered."""
    if order.state == OrderRecord.State.EXPIRED:
        limit = (order.expires_at - order.created_at).total_seconds()
        return {
            "code": "timeout",
            "message": f"Node {order.node.name} did not answer the order {order.kind} within {limit:.0f} s.",
            "hint": "Look at the node's agent and at its container engine.",
        }
    error = order.result.get("error") or {}
    return {
        "code": error.get("code") or "failed",
        "message": error.get("message") or f"Node {order.node.name} could not do {order.kind}.",
        "hint": error.get("hint") or "",
    }


def is_open(order: OrderRecord) -> bool:
    """Return whether an answer may still come."""
    return order.state == OrderRecord.State.PENDING


def succeeded(order: OrderRecord) -> bool:
    """Return whether the node did it."""
    return order.state == OrderRecord.State.DONE
