"""Which snapshot period does a job use, since which step, and what came of it (M10)?

`apply` announces a period that a person chose, `replan` one that was computed anew within the limits of `set_auto`;
`follow_all` sees every announcement through until all ranks go by it.
"""

from reliability.domain.planner.steps import MOST_STEPS
from reliability.selectors.plan_history import take_over
from reliability.services.plans.applying import Source, apply, sources
from reliability.services.plans.automatic import replan, replan_all, set_auto, stop_auto
from reliability.services.plans.following import follow_all, freeze

__all__ = [
    "MOST_STEPS",
    "Source",
    "apply",
    "follow_all",
    "freeze",
    "replan",
    "replan_all",
    "set_auto",
    "sources",
    "stop_auto",
    "take_over",
]
