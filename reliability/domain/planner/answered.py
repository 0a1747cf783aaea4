"""What does an answer of the planner consist of?"""

from dataclasses import dataclass

from reliability.domain.planner import what_if
from reliability.domain.planner.comparisons import Comparison
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.levers import Gain, Pair
from reliability.domain.planner.request import Request
from reliability.domain.planner.results import ModelPlan, Shares
from reliability.domain.planner.steps import StepPlan
from reliability.domain.planner.what_if import TierPlan, UnderLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What the period in use gives, in seconds from start to start. `ettr_gain`: what the recommended one adds."""

    period_s: float
    ettr: float
    ettr_gain: float
    keeps_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standbys:
    """How often a lost node finds no standby, and what that costs.

    `load`: nodes in repair on average. `p_no_standby`: share of lost nodes that find none. `share_short`: share of time
    in which the job waits for one. `mean_downtime_s` is over all faults. `for_one_percent`: how many standbys leave one
    lost node in a hundred without.
    """

    standbys: int
    load: float
    p_no_standby: float
    share_short: float
    mean_wait_s: float
    mean_downtime_s: float
    for_one_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credible:
    """Where the results lie with probability `level`, given the counted faults: each (low, high)."""

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
    cheapest: Pair | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that page, command and REST tell.

    `recommended_s` is the period to use, start to start: the best one, or without faults the shortest that keeps the
    target (None: none does). `recommended_ettr` is what it gives; `shares` are those of the recommended steps where the
    time of a step is known. `reachable` is the verdict.
    """

    request: Request
    inputs: Inputs
    exact: ModelPlan
    first_order: ModelPlan
    recommended_s: float | None
    recommended_ettr: float
    shares: Shares
    steps: StepPlan | None
    first_order_steps: StepPlan | None
    present: Present | None
    spares: Standbys | None
    credible: Credible | None
    levers: Levers
    gains: tuple[Gain, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def used_s(self) -> float | None:
        """The period that is really used, start to start: that of the recommended steps, where these are known."""
        return self.recommended_s if self.steps is None else self.steps.period_s

    @property
    def reachable(self) -> bool:
        """Whether the target is reached: by some period, and by some whole number of steps where a step is known."""
        return self.exact.feasible and (self.steps is None or self.steps.interval is not None)

    @property
    def why_no_steps(self) -> str | None:
        """Why no number of steps keeps a target that some period would keep; None where one does, or no period does."""
        if self.reachable or not self.exact.feasible or self.request.step_s is None:
            return None
        step = spoken(self.request.step_s)
        return f"no number of steps keeps {self.inputs.target:.6g}: every step takes {step}"

    @property
    def laws(self) -> tuple[UnderLaw, ...]:
        """What other laws of faults make of the used period; computed when asked for."""
        return what_if.under_laws(self.inputs, self.used_s) if self.used_s else ()

    @property
    def tiers(self) -> tuple[TierPlan, ...]:
        """How often each tier gets a copy at the used period."""
        return what_if.tiers(self.request, self.used_s) if self.used_s else ()
