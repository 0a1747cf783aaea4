"""What may a controller tell a node to do, and how does the node know that the order is genuine?

An order travels as an envelope: the canonical JSON text of the order and an HMAC-SHA256 over that text with
the node's own key. The broker carries envelopes but cannot make one. Delivering the same order again means a
new nonce and expiry with the same `id`; the same nonce twice is a replay.
"""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from reliability.errors import InvalidInput, OrderRefused


class OrderKind(StrEnum):
    """What an agent can be told to do. Payloads are listed in docs/protocol.md."""

    PREPARE = "prepare"
    STOP = "stop"
    RESTORE = "restore"
    START = "start"
    RELEASE = "release"
    PEER_SERVE = "peer_serve"
    PARTNER_KEEP = "partner_keep"
    PROBE_SERVE = "probe_serve"
    PROBE_MEASURE = "probe_measure"
    PROBE_SDC = "probe_sdc"
    TRIAL_RESTORE = "trial_restore"
    SET_PERIOD = "set_period"
    DRILL = "drill"


@dataclass(frozen=True, kw_only=True)
class Order:
    """One instruction for one node. `expires_at` and `issued_at` are server time, seconds since 1970."""

    id: str
    kind: OrderKind
    node: str
    nonce: str
    issued_at: float
    expires_at: float
    job: str = ""
    epoch: int = 0
    payload: Mapping[str, Any] = field(default_factory=dict)


def derive_key(secret: str, node: str, generation: str) -> str:
    """Return the order key (64 hex digits) of a node, derived from the server's secret.

    `generation` changes when the node is enrolled anew, so an old key stops working.
    """
    text = f"stepkeeper-order-key|{node}|{generation}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def _signature(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()


def _genuine(text: str, sig: str, key: str) -> bool:
    try:
        return hmac.compare_digest(_signature(key, text).encode(), sig.encode())
    except UnicodeEncodeError:
        return False  # half a surrogate pair, which JSON can carry and no sealed order contains


def seal(order: Order, *, key: str) -> dict[str, str]:
    """Return the envelope {"order": text, "sig": hex} of an order."""
    text = json.dumps(asdict(order), sort_keys=True, separators=(",", ":"))
    return {"order": text, "sig": _signature(key, text)}


def _parsed(text: str) -> Order:
    try:
        raw = json.loads(text)
        return Order(**{**raw, "kind": OrderKind(raw["kind"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(
            "order", f"not an order: {error}", hint="Agent and server must be of the same version."
        ) from error


def unseal(envelope: Mapping[str, Any], *, key: str, node: str, now: float, seen_nonces: Collection[str]) -> Order:
    """Return the order if it is genuine, for this node, in time and not seen before.

    `now` is server time as the agent knows it. Raises OrderRefused with the reason, InvalidInput when the
    signed text is no order.
    """
    text, sig = envelope.get("order"), envelope.get("sig")
    if not isinstance(text, str) or not isinstance(sig, str):
        raise OrderRefused("forged", "The message is not a signed order.")
    if not _genuine(text, sig, key):
        raise OrderRefused("forged", "The signature does not match this node's key.")
    order = _parsed(text)
    if order.node != node:
        raise OrderRefused("misdirected", f"The order is for node {order.node}.")
    if now > order.expires_at:
        raise OrderRefused("expired", f"Order {order.id} ({order.kind}) expired {now - order.expires_at:.1f} s ago.")
    if order.nonce in seen_nonces:
        raise OrderRefused("replayed", f"Order {order.id} ({order.kind}) was delivered with a nonce already used.")
    return order
