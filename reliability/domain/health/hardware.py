"""Which ids tell a machine or a part of it again, whatever name its agent has?

Serial numbers, machine ids and GPU ids do; network addresses and processor models do not. Firmware that was never
filled in, images that were copied, and several agents on one machine give ids that name many machines or none: those
do not count, so that one bad machine never takes the others with it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

KINDS: Mapping[str, str] = MappingProxyType(
    {"board_serial": "board", "product_uuid": "system", "machine_id": "machine", "gpu_uuids": "gpu"}
)
"""Name of an id as agents tell it -> how it begins here."""
NAMES: Mapping[str, str] = MappingProxyType(
    {"board": "board serial", "system": "system UUID", "machine": "machine id", "gpu": "GPU"}
)
SHORTEST = 4
MOST = 64
"""Ids of one node that are looked at; a machine has some twenty."""

PLACEHOLDERS = frozenset(
    {
        "none", "null", "na", "nil", "unknown", "empty", "invalid", "default", "defaultstring", "oem", "oemstring",
        "notspecified", "notapplicable", "notavailable", "notset", "notprovided", "unspecified", "undefined",
        "tobefilledbyoem", "tobefilled", "filledbyoem", "systemserialnumber", "serialnumber", "boardserialnumber",
        "baseboardserialnumber", "chassisserialnumber", "mbserialnumber", "type2boardserialnumber", "sernum",
        "0123456789", "123456789", "1234567890", "01234567", "12345678", "uninitialized", "template",
        "03000200040005000006000700080009",
    }
)  # fmt: skip
"""What firmware and images say where nobody filled anything in, without signs and in small letters."""
_SIGNS = re.compile(r"[^0-9a-z]+")


def is_placeholder(text: str) -> bool:
    """Return whether an id names no machine: empty, too short, one sign over and over, or a known default."""
    plain = _SIGNS.sub("", text.casefold())
    core = plain.removeprefix("gpu")
    return len(core) < SHORTEST or len(set(core)) == 1 or plain in PLACEHOLDERS or core in PLACEHOLDERS


def identities(told: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of a node that could tell its hardware again, as 'board:...', 'system:', 'machine:', 'gpu:'.

    `told` is what its agent said: texts, or lists of texts. What is a placeholder or no text is left out.
    """
    found: set[str] = set()
    for name, kind in KINDS.items():
        value = told.get(name)
        texts = value if isinstance(value, list | tuple) else (value,)
        for text in texts[:MOST]:
            if isinstance(text, str) and not is_placeholder(text):
                found.add(f"{kind}:{text.strip().casefold()[:120]}")
    return frozenset(found)


def own(ids: Collection[str], others: Iterable[Collection[str]]) -> frozenset[str]:
    """Return those ids that none of the `others`, the live nodes beside it, carries as well.

    An id that several live nodes share stands for a copied image or for one machine with several agents.
    """
    shared = {each for other in others for each in other}
    return frozenset(ids) - shared


def spoken(identity: str) -> str:
    """Return an id as people read it: 'board serial ABC123'."""
    kind, _, value = identity.partition(":")
    return f"{NAMES.get(kind, kind)} {value}"
