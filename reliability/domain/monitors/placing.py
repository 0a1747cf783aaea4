"""Which node does a monitor mean, by a name, a host name with or without its domain, an address, or a GPU's UUID?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Known:
    """A node that is known here."""

    name: str
    address: str
    hardware_ids: Mapping[str, Any]


class Directory:
    """Finds nodes by what monitors call them: the exact name first. What two nodes share names neither of them."""

    def __init__(self, nodes: Iterable[Known]) -> None:
        self._names: set[str] = set()
        self._folded: dict[str, str | None] = {}
        self._others: dict[str, str | None] = {}
        for node in nodes:
            self._names.add(node.name)
            key = node.name.lower()
            self._folded[key] = None if key in self._folded else node.name
            uuids = node.hardware_ids.get("gpu_uuids")
            machine = node.hardware_ids.get("machine_id")
            for other in (node.address, machine, *(uuids if isinstance(uuids, list) else ())):
                if isinstance(other, str) and other:
                    key = other.lower()
                    self._others[key] = node.name if self._others.get(key, node.name) == node.name else None

    def find(self, named: str, uuid: str = "") -> str | None:
        """Return the node's name, None when nobody is called so."""
        for each in _spellings(named):
            if each in self._names:
                return each
            key = each.lower()
            if key in self._folded:
                return self._folded[key]
            found = self._others.get(key)
            if found is not None:
                return found
        return self._others.get(uuid.lower()) if uuid else None


def _spellings(named: str) -> Iterable[str]:
    """Yield the name, without a port, without its domain."""
    name = named.strip()
    if not name:
        return
    yield name
    host, _, port = name.rpartition(":")
    if host and port.isdecimal():
        name = host.strip("[]")
        yield name
    first, dot, _ = name.partition(".")
    if dot and not first.isdecimal():
        yield first
