"""The whole answer of the planner, and its one JSON form for page, command and REST."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.request import Request
from reliability.domain.planner.results import ModelPlan
from reliability.domain.planner.steps import StepPlan

__all__ = ["Answer", "Comparison", "Credible", "Gain", "Levers", "Present", "Request", "Standbys", "answer", "as_json"]

LEVEL = 0.9
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What the period in use gives. `ettr_gain` is what the best period gives more."""

    period_s: float
    ettr: float
    ettr_gain: float
    keeps_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standbys:
    """How often a lost node finds no standby, and what that costs. `mean_downtime_s` is over all faults."""

    standbys: int
    load: float
    p_no_standby: float
    share_short: float
    mean_wait_s: float
    mean_downtime_s: float
    for_one_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credible:
    """Where the results lie with probability `level`, given the counted faults; ends by size, each (low, high)."""

    level: float
    mtbf_s: tuple[float, float]
    period_s: tuple[float, float]
    ettr_max: tuple[float, float]
    p_target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """What each input alone would have to be for the target: at most, but `mtbf_s` and `standbys` at least.

    None where that alone is not enough, or nothing limits it, or it is not known. `cheapest` is the pair (save stall,
    recovery) that costs least when halving either costs the same.
    """

    save_stall_s: float | None
    recovery_s: float | None
    mtbf_s: float | None
    nodes: int | None
    standbys: int | None
    cheapest: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How much the effective training rate rises when one input is halved; `name` as in Inputs, or `faults`."""

    name: str
    ettr_gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Another rule for the period: the exact rate at its period, and the rate that it promises itself."""

    name: str
    period_s: float
    ettr: float
    their_ettr: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that page, command and REST tell. `recommended_s` is None where saving never is best and no target
    can be kept."""

    request: Request
    inputs: Inputs
    exact: ModelPlan
    first_order: ModelPlan
    recommended_s: float | None
    steps: StepPlan | None
    present: Present | None
    spares: Standbys | None
    credible: Credible | None
    levers: Levers
    gains: tuple[Gain, ...]
    comparisons: tuple[Comparison, ...]


def answer(request: Request) -> Answer:
    """Return the answer. Raises InvalidInput where the values cannot be planned with."""
    raise NotImplementedError


def as_json(found: Answer, *, sources: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer as finite numbers, text, lists and null.

    `inputs` holds the request as given (seconds in names with _s) and `inputs.effective` what the model was given;
    `inputs.sources` is what the caller knows about where the values come from, name -> anything JSON.
    """
    raise NotImplementedError
