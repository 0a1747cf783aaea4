"""Which fields of a line say where something is? One list for all: two that differ in one of them are two things.

What a report is counted into, what waits beside it and what says that it is over all go by it: with fewer names in one
of them, the end of one link, port or check would be the end of another.
"""

from collections.abc import Mapping

from reliability.domain.faults.words import Value

PLACES = (
    *("device", "gpc", "tpc", "link", "switch", "server", "module", "interface", "peer", "node", "cgroup"),
    *("controller", "slot", "port", "counter", "check", "tier", "folder"),
)


def can_be_one(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Return whether two can speak of one place: no name that both tell differs. Not every source tells every name."""
    return all(one[name] == other[name] for name in PLACES if name in one and name in other)


def place_of(fields: Mapping[str, Value]) -> tuple[Value | None, ...]:
    """Return the place that fields tell, None for each name they do not."""
    return tuple(fields.get(name) for name in PLACES)
