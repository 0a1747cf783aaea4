"""What do other published rules for the period say about the same job? Each row is named as what it is."""

import math
from dataclasses import dataclass

from reliability.domain.planner import exact, first_order
from reliability.domain.planner.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rule: its period (seconds, start to start), the exact rate at it, and the rate that the rule itself tells."""

    name: str
    period_s: float
    ettr: float
    their_ettr: float | None = None


def rows(inputs: Inputs) -> tuple[Comparison, ...]:
    """Return the rules that have a period for these inputs; none without faults or where a save takes no time."""
    if inputs.mtbf_s is None or inputs.save_stall_s == 0:
        return ()
    young_s = math.sqrt(2 * inputs.save_stall_s * inputs.mtbf_s)
    return (
        Comparison(
            "Young 1974, first order",
            young_s,
            exact.ettr_at(inputs, young_s),
            _rate(first_order.ettr_at(inputs, young_s)),
        ),
    )


def _rate(value: float) -> float | None:
    """A rate below 0 says that a model does not describe these inputs; it is not shown."""
    return value if value >= 0 else None
