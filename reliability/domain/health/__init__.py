"""In what condition is a node, and what is it for?

`words` names the states, `silence` says when a node counts as silent or lost, `condition` derives the state of a node
with its reasons, `hardware` says which ids tell a machine again.
"""

from reliability.domain.health.condition import (
    STABLE_S,
    Cause,
    CheckSeen,
    Condition,
    HoldSeen,
    IncidentSeen,
    QuarantineSeen,
    Rules,
    Seen,
    derive,
)
from reliability.domain.health.silence import control_plane_suspected, liveness, two_proofs
from reliability.domain.health.words import PLACE, SERVING, USABLE, WORST_FIRST, NodeHealth, NodeRole

__all__ = [
    "PLACE",
    "SERVING",
    "STABLE_S",
    "USABLE",
    "WORST_FIRST",
    "Cause",
    "CheckSeen",
    "Condition",
    "HoldSeen",
    "IncidentSeen",
    "NodeHealth",
    "NodeRole",
    "QuarantineSeen",
    "Rules",
    "Seen",
    "control_plane_suspected",
    "derive",
    "liveness",
    "two_proofs",
]
