"""How may a job be guarded: limits in seconds, who decides, what to do when the cause is unknown?"""

from dataclasses import dataclass
from enum import StrEnum

from reliability.errors import InvalidInput


class Approval(StrEnum):
    """Who approves a failover of a job."""

    MANUAL = "manual"
    AUTOMATIC = "automatic"


class LeaseRule(StrEnum):
    """What an agent does with its ranks when its lease has run out (docs/adr/0003)."""

    STOP_WHEN_STUCK = "stop_when_stuck"
    STOP = "stop"
    KEEP = "keep"


@dataclass(frozen=True, kw_only=True)
class ClusterPolicy:
    """Limits that hold for all nodes. All times in seconds.

    heartbeat_s: agent's sending period. lease_s: how long an agent may run ranks after the last heartbeat
    that was answered. silence_s: server's limit until a silent node counts as unreachable. proof_s: how long
    no rank must have made a step for "no progress" to be a proof. lone_node_s: how long a node must be silent to be
    lost when no other node of its job is heard.
    """

    heartbeat_s: float = 1.0
    lease_s: float = 4.0
    silence_s: float = 6.0
    proof_s: float = 3.0
    lone_node_s: float = 60.0
    approval_ttl_s: float = 600.0
    validation_max_age_s: float = 900.0
    order_ttl_s: float = 60.0
    fence_limit_s: float = 5.0
    restore_limit_s: float = 120.0
    start_limit_s: float = 120.0
    verify_limit_s: float = 120.0
    max_attempts: int = 5

    def __post_init__(self) -> None:
        """Raise InvalidInput where limits contradict each other."""
        if self.heartbeat_s <= 0:
            raise InvalidInput("heartbeat_s", "must be above 0", hint="1 second suits most clusters.")
        if self.silence_s < 3 * self.heartbeat_s:
            raise InvalidInput(
                "silence_s",
                f"{self.silence_s} s is less than three heartbeats ({3 * self.heartbeat_s} s)",
                hint="One late heartbeat would look like a lost node: raise the limit or send more often.",
            )
        if self.lone_node_s < self.silence_s:
            raise InvalidInput(
                "lone_node_s",
                f"{self.lone_node_s} s is shorter than the silence limit ({self.silence_s} s)",
                hint="Where no other node can tell more, silence must last longer before it counts.",
            )
        if self.lease_s > self.silence_s:
            raise InvalidInput(
                "lease_s",
                f"{self.lease_s} s is longer than the silence limit ({self.silence_s} s)",
                hint="A silent node must have stopped its ranks before its work is given away.",
            )
