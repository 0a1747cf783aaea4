"""How often should a job save, what does that give, and what would reach the target otherwise?

`exact` is the model that counts, `first_order` the one that explains it; both have `plan`, `ettr_at` and `shares_at`.
`steps`, `spread`, `levers` and `curves` go on from their results.
"""

from reliability.domain.planner import curves, exact, first_order, levers, spread, steps
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.results import Limits, ModelPlan, Shares

__all__ = [
    "Inputs",
    "Limits",
    "ModelPlan",
    "Shares",
    "curves",
    "exact",
    "first_order",
    "levers",
    "spread",
    "steps",
]
