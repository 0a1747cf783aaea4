"""May this node go on running its ranks although the control plane does not answer? (docs/adr/0003-lease.md)

A control plane that is down must not stop training; a node that is cut off must not train beside its replacement.
The two look alike from the node, so the ranks' own progress tells them apart: ranks of one job need each other for
every step, and a node cut off from the rest makes none.
"""

from reliability.domain.policy import LeaseRule

STARTUP_S = 30.0
"""How long ranks without a first step count as starting and not as stuck."""

SLOW_STEPS = 3.0
"""A job with long steps is stuck only after this many of its own steps."""


def must_stop(
    rule: LeaseRule, *, unanswered_s: float, lease_s: float, stepless_s: float, step_s: float, stepped: bool
) -> bool:
    """Return whether the lease demands that a job's local ranks end now.

    `unanswered_s`: since the last heartbeat that was answered. `stepless_s`: since any local rank finished a step,
    or since the start where none has (`stepped` False). `step_s`: longest recent step of a local rank.
    """
    if unanswered_s <= lease_s or rule is LeaseRule.KEEP:
        return False
    if rule is LeaseRule.STOP:
        return True
    patience_s = SLOW_STEPS * step_s if stepped else STARTUP_S
    return stepless_s > max(lease_s, patience_s)
