"""How often should a job save, what does that give, and what would reach the target otherwise?

`exact` is the model that counts, `first_order` the one that explains it; both have `plan`, `ettr_at` and `shares_at`.
"""

import sys
import types

from reliability.domain.planner import exact, first_order, legacy, steps
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.legacy import FirstOrderInputs, FirstOrderPlan, curve, rate_at, steps_interval
from reliability.domain.planner.results import Limits, ModelPlan, Shares

__all__ = [
    "FirstOrderInputs",
    "FirstOrderPlan",
    "Inputs",
    "Limits",
    "ModelPlan",
    "Shares",
    "curve",
    "exact",
    "first_order",
    "rate_at",
    "steps",
    "steps_interval",
]


class _AlsoCalled(types.ModuleType):
    """Two names were functions and are modules now: calls of them go on to the functions until nobody makes any."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        return getattr(legacy, self.__name__.rpartition(".")[2])(*args, **kwargs)


for _name in ("first_order", "steps"):
    sys.modules[f"{__name__}.{_name}"].__class__ = _AlsoCalled
