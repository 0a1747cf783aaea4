"""What do other published rules for the period say about the same job? Each row is named as what it is.

Every period here is from start to start; rules that speak of work between saves have the stall added.
"""

import math
from dataclasses import dataclass

from reliability.domain.planner import exact, first_order, rules
from reliability.domain.planner.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Comparison:
    """A rule: its period (seconds, start to start), the exact rate at it, and the rate that the rule itself tells.

    None as their rate: the rule tells none, or one below 0, which says that it does not describe these inputs.
    """

    name: str
    period_s: float
    ettr: float
    their_ettr: float | None = None


def rows(inputs: Inputs) -> tuple[Comparison, ...]:
    """Return the rules that have a period for these inputs; none without faults or where a save takes no time."""
    stall_s, mtbf_s = inputs.save_stall_s, inputs.mtbf_s
    if mtbf_s is None or stall_s == 0:
        return ()
    young_s = math.sqrt(2 * stall_s) * math.sqrt(mtbf_s)
    found = [
        _row(inputs, "Young 1974, first order", young_s, first_order.ettr_at(inputs, young_s)),
        _row(inputs, "Daly 2006, higher order", rules.daly_2006(stall_s, mtbf_s) + stall_s, None),
        _row(
            inputs,
            "Saxena et al. 2024, availability as the objective",
            rules.saxena_period(stall_s, mtbf_s, inputs.recovery_s + inputs.downtime_s),
            None,
        ),
    ]
    restart_s = inputs.recovery_s + inputs.downtime_s
    work_s = rules.meta_optimum(1.0 / mtbf_s, restart_s, stall_s)
    if work_s:
        told = inputs.available * rules.meta_ettr(1.0 / mtbf_s, restart_s, work_s, stall_s)
        found.append(_row(inputs, "Meta's expected ETTR, at its own optimum", work_s + stall_s, told))
    return tuple(found)


def _row(inputs: Inputs, name: str, period_s: float, theirs: float | None) -> Comparison:
    return Comparison(
        name=name,
        period_s=period_s,
        ettr=exact.ettr_at(inputs, period_s),
        their_ettr=theirs if theirs is not None and theirs >= 0 else None,
    )
