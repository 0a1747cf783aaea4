"""How does the fault-code table that is in force here reach the nodes, and how does a node know that it is genuine?

Every node has the table that its agent was shipped with. What people changed travels as a sealed text, as orders do,
with a mark of its own before it so that neither can be taken for the other. A table is known by the number of the last
change; one that was sealed earlier than the one that is held is not taken.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reliability.domain.faults.changing import changed_row
from reliability.domain.faults.table import TABLE
from reliability.domain.faults.words import FaultCode
from reliability.errors import InvalidInput, OrderRefused, ReliabilityError

MOST_BYTES = 2 * 2**20
"""Longer than this a node takes no table."""
MOST_CHANGED = 500
"""So many codes may differ from the table as shipped; each has a few sentences."""
_MARK = b"fault-table|"
Changes = Mapping[str, Mapping[str, Any]]
"""Code -> values of `changing.VALUES`, and `enabled`."""


@dataclass(frozen=True, kw_only=True)
class SentTable:
    """A table as it was sent. `changes_to` is the number of the last change; `issued_at` server time, s since 1970."""

    changes_to: int
    issued_at: float
    changes: Changes


@lru_cache(maxsize=1)
def shipped() -> str:
    """Return what tells this table as shipped from that of another version: 12 hex digits."""
    rows = [
        [
            row.code,
            row.fault_class,
            row.action,
            row.severity,
            row.origin,
            row.enabled,
            [each.pattern for each in row.lines],
        ]
        for row in TABLE.values()
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def seal_table(sent: SentTable, *, node: str, key: str) -> dict[str, str]:
    """Return the envelope {"table": text, "sig": hex} for a node; `key` is its order key (hex)."""
    told = {"node": node, "changes_to": sent.changes_to, "issued_at": sent.issued_at, "changes": sent.changes}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"table": text, "sig": _signature(key, text)}


def _signature(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), _MARK + text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def unseal_table(envelope: Mapping[str, Any], *, node: str, key: str) -> SentTable:
    """Return the table if it is genuine and for this node.

    Raises OrderRefused with the reason, InvalidInput when what was sealed is no table.
    """
    text, sig = envelope.get("table"), envelope.get("sig")
    if not isinstance(text, str) or not isinstance(sig, str):
        raise OrderRefused("forged", "The message is not a sealed fault-code table.")
    if len(text) > MOST_BYTES:
        raise InvalidInput("table", f"has {len(text)} characters", hint=f"At most {MOST_BYTES} are taken.")
    if not hmac.compare_digest(_signature(key, text).encode(), sig.encode("utf-8", "replace")):
        raise OrderRefused("forged", "The signature of the fault-code table does not match this node's key.")
    raw = read_sent(text)
    if raw.get("node") != node:
        raise OrderRefused("misdirected", f"The fault-code table is for node {raw.get('node')}.")
    return sent_table(raw)


def read_sent(text: str) -> Mapping[str, Any]:
    """Return the object that a text holds. Raises InvalidInput."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("table", f"is not JSON: {error}", hint="Agent and server must be of one version.") from error
    if not isinstance(raw, dict):
        raise InvalidInput("table", "is no object", hint="Agent and server must be of one version.")
    return raw


def sent_table(raw: Mapping[str, Any]) -> SentTable:
    """Return the table that an object tells of. Raises InvalidInput."""
    number, issued_at, changes = raw.get("changes_to"), raw.get("issued_at"), raw.get("changes")
    right = isinstance(number, int) and isinstance(issued_at, int | float) and isinstance(changes, dict)
    if not right or not all(isinstance(values, dict) for values in changes.values()):  # type: ignore[union-attr]
        hint = "Agent and server must be of one version."
        raise InvalidInput("table", "lacks a number, a time or its changes", hint=hint)
    return SentTable(changes_to=number, issued_at=float(issued_at), changes=changes)  # type: ignore[arg-type]


def usable(changes: Changes) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return the changes that this version of the table can take, and the codes of those that it cannot."""
    good: dict[str, Mapping[str, Any]] = {}
    rows: list[FaultCode] = []
    bad: list[str] = []
    for code, values in changes.items():
        try:
            row = changed_row(TABLE, code, values)
            TABLE.changed([*rows, row])
        except (ReliabilityError, ValueError, TypeError, KeyError, AttributeError):
            bad.append(code)
        else:
            rows.append(row)
            good[code] = values
    return good, bad
