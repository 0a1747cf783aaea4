"""How may a job be guarded: limits in seconds, who decides, what to do when the cause is unknown?"""

from dataclasses import dataclass
from enum import StrEnum

from reliability.domain import class_actions, retrying
from reliability.domain.faults.radius import RadiusRule
from reliability.errors import InvalidInput

AWAY_LIMITS = 3
LEAST_FIRST_STEP_S = 5.0
"""Imports and a rendezvous alone take as long: a shorter limit would take every start for a failed one."""


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
    lost when no other node of its job is heard. verify_limit_s: how long the first step after a start may take.
    back_off_s, back_off_longest_s, progress_steps, near_steps: domain/budget.py. class_actions: class_actions.py.
    radius_share, radius_nodes, radius_window_s: when many nodes are too many to blame (domain/faults/radius.py).
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
    back_off_s: float = 1.0
    back_off_longest_s: float = 300.0
    progress_steps: int = 1000
    near_steps: int = 10
    class_actions: str = ""
    radius_share: float = 0.5
    radius_nodes: int = 8
    radius_window_s: float = 60.0

    def __post_init__(self) -> None:
        """Raise InvalidInput where limits contradict each other, or would cause false alarms."""
        if self.heartbeat_s <= 0:
            raise InvalidInput("heartbeat_s", "must be above 0", hint="1 second suits most clusters.")
        self._check_silence()
        self._check_lease()
        self._check_first_step()
        self._check_back_off()
        _ = self.radius

    @property
    def radius(self) -> RadiusRule:
        """When many nodes are too many to blame."""
        return RadiusRule(share=self.radius_share, nodes=self.radius_nodes, window_s=self.radius_window_s)

    @property
    def away_s(self) -> float:
        """After so long without our own ingest it is told that it was away; a restart is quicker."""
        return AWAY_LIMITS * self.silence_s

    def _check_silence(self) -> None:
        least_s = retrying.least_silence_s(self.heartbeat_s)
        if self.silence_s < least_s:
            raise InvalidInput(
                "silence_s",
                f"{self.silence_s:g} s is less than three heartbeats ({retrying.BEATS * self.heartbeat_s:g} s) plus "
                f"the worst retry of an agent ({retrying.QUICKEST.worst_s:g} s)",
                hint=f"One lost message would look like a lost node: at least {least_s:g} s, or send more often.",
            )
        if self.lone_node_s < self.silence_s:
            raise InvalidInput(
                "lone_node_s",
                f"{self.lone_node_s} s is shorter than the silence limit ({self.silence_s} s)",
                hint="Where no other node can tell more, silence must last longer before it counts.",
            )

    def _check_back_off(self) -> None:
        if self.back_off_longest_s < self.back_off_s:
            raise InvalidInput(
                "back_off_longest_s",
                f"{self.back_off_longest_s:g} s is shorter than the first back-off ({self.back_off_s:g} s)",
                hint="Each restart without progress waits twice as long as the one before, up to this.",
            )
        _ = self.actions

    @property
    def actions(self) -> dict[str, str]:
        """What is done for a class of faults in place of what the table says: class -> action."""
        return class_actions.parse(self.class_actions, "class_actions")

    def _check_lease(self) -> None:
        least_s = self.heartbeat_s + retrying.QUICKEST.worst_s
        if self.lease_s < least_s:
            raise InvalidInput(
                "lease_s",
                f"{self.lease_s:g} s is less than a heartbeat plus the worst retry of an agent ({least_s:g} s)",
                hint="One lost message would end the ranks of a healthy node: raise the lease or send more often.",
            )
        if self.lease_s > self.silence_s:
            raise InvalidInput(
                "lease_s",
                f"{self.lease_s} s is longer than the silence limit ({self.silence_s} s)",
                hint="A silent node must have stopped its ranks before its work is given away.",
            )

    def _check_first_step(self) -> None:
        if self.verify_limit_s < LEAST_FIRST_STEP_S:
            raise InvalidInput(
                "verify_limit_s",
                f"{self.verify_limit_s:g} s is too short for a first step",
                hint=f"Imports and the ranks' rendezvous come before it: at least {LEAST_FIRST_STEP_S:g} s.",
            )
