"""In what condition is a node, and what is it for?"""

from enum import StrEnum


class NodeRole(StrEnum):
    """What a node is for. A node that holds a slot of a job trains; all others are standbys."""

    TRAINING = "training"
    STANDBY = "standby"


class NodeHealth(StrEnum):
    """Condition of a node. UNREACHABLE means that nothing is heard; it is not a failure."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
