"""What may a node's answer to an order hold, by the kind of the order?

Read once, before the answer is kept: whatever is looked at later has the type it must have. An entry that makes no
sense is left out, so that it can stop neither the recovery nor the trial that waits for the answer; what nobody here
looks at stays as it was told.
"""

from collections.abc import Callable, Mapping
from typing import Any

from reliability.domain import fields as f
from reliability.domain.fields import Reader
from reliability.domain.orders import OrderKind
from reliability.errors import InvalidInput

MOST_RANK = 2**31 - 1
Known = Mapping[str, Callable[[object, str], Any]]

_rank = f.nullable(f.integer(most=MOST_RANK))
_word = f.nullable(f.text(most=4000))
_number = f.nullable(f.number(least=0))


def _entries(known: Known) -> Reader:
    """Read a list of objects, without those of which a known field has another type, or that are no objects."""

    def read(value: object, path: str) -> list[dict[str, Any]]:
        found = []
        for each in value if isinstance(value, list) else ():
            try:
                found.append(_typed(known, f.mapping(each, path), path))
            except InvalidInput:
                continue
        return found

    return read


def _typed(known: Known, value: Mapping[str, Any], path: str) -> dict[str, Any]:
    typed = {name: read(value[name], f"{path}.{name}") for name, read in known.items() if name in value}
    return {**value, **typed}


def _lender(value: object, path: str) -> dict[str, Any]:
    told = f.mapping(value, path)
    return {**told, "node": f.name(told.get("node"), f"{path}.node"), "rank": _rank(told.get("rank"), f"{path}.rank")}


_from = f.nullable(_lender)
_trouble: Known = {"rank": _rank, "tier": _word, "path": _word, "code": _word, "message": _word, "from": _from}
_brought: Known = {**_trouble, "skipped": _entries(_trouble)}
_read = _entries(_trouble)
_port = f.integer(least=1, most=65535)

ANSWERS: Mapping[OrderKind, Known] = {
    OrderKind.RESTORE: {"ranks": _entries(_brought), "bad": _read},
    OrderKind.TRIAL_RESTORE: {"read": _read, "bad": _read, "unread": _read, "seconds": _number, "size_bytes": _number},
    OrderKind.PEER_SERVE: {"port": _port},
    OrderKind.PROBE_SERVE: {"port": _port},
    OrderKind.PROBE_MEASURE: {
        "pairs": _entries({"node": _word, "bytes_per_s": f.nullable(f.list_of(f.number(), most=1000))})
    },
    OrderKind.PROBE_SDC: {"digests": f.list_of(f.text(most=200), most=1000)},
}
"""What is looked at of an answer; of other kinds nothing is."""


def readable(kind: str, told: object) -> dict[str, Any]:
    """Return what a node answered without what makes no sense; {} when the answer is no object."""
    if not isinstance(told, Mapping):
        return {}
    found = dict(told)
    for name, read in ANSWERS.get(OrderKind(kind), {}).items():
        if name not in found:
            continue
        try:
            found[name] = read(found[name], name)
        except InvalidInput:
            del found[name]
    return found
