"""The words of nodes: what one is for, and in what condition it is."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class NodeRole(StrEnum):
    """What a node is for. A node that holds a slot of a job trains; all others are standbys."""

    TRAINING = "training"
    STANDBY = "standby"


class NodeHealth(StrEnum):
    """Condition of a node. UNREACHABLE means that nothing is heard; it is not a failure.

    UNKNOWN means that a check of it gave no result: it is not shown as healthy, and nothing is moved because of it.
    """

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


WORST_FIRST = (
    NodeHealth.UNHEALTHY,
    NodeHealth.UNREACHABLE,
    NodeHealth.UNKNOWN,
    NodeHealth.DEGRADED,
    NodeHealth.HEALTHY,
)
PLACE: Mapping[str, int] = MappingProxyType({state.value: place for place, state in enumerate(WORST_FIRST)})
"""Health -> its place in WORST_FIRST; 0 is the worst."""

USABLE = (NodeHealth.HEALTHY, NodeHealth.DEGRADED)
"""A node in one of these may be given new work; healthy ones come first."""
SERVING = (NodeHealth.HEALTHY, NodeHealth.DEGRADED, NodeHealth.UNKNOWN)
"""A node in one of these, and heard from, goes on with what it does: a check without a result takes nothing away."""
