"""What does a simulation say beside a plan, and what of the plan is not part of it?"""

from dataclasses import dataclass, replace

from reliability import simulation
from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.request import Request
from reliability.simulation import Check, Tiers

TIERS_GOOD_TO = 0.003
"""Two faults within one drain are not in the formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A simulated rate beside the one that the plan gives for the same.

    `tiers`: copies in memory, on SSD and on storage were simulated, each with the faults that need it. `left_out`: what
    is in the plan and in neither of the two rates. `good_to`: how far the two may be apart besides chance.
    """

    check: Check
    planned_ettr: float
    tiers: bool
    left_out: tuple[str, ...]
    good_to: float = 0.0


def trial(
    found: Answer, period_s: float, *, failures: int, seed: int = 1, limit_s: float, waits: bool = False
) -> Trial:
    """Simulate a plan at a period (seconds, start to start). Raises InvalidInput for what cannot be simulated.

    `waits`: lost nodes wait for a repair in the simulation too, where standbys are known; else, and on tiers, the mean
    wait is part of the downtime.
    """
    request, inputs = found.request, found.inputs
    left_out: tuple[str, ...] = ()
    node_share, memory_share = request.shares
    tiers = Tiers(
        node_share=node_share,
        memory_share=memory_share,
        drain_s=request.drain_s,
        drain_ssd_s=request.drain_ssd_s,
    )
    if inputs.mtbf_s is not None and tiers.differ:
        running = undisturbed(inputs)
        check = simulation.check_tiers(running, tiers, period_s, failures, seed, limit_s)
        return Trial(
            check=check,
            planned_ettr=exact.ettr_at(running, period_s),
            tiers=True,
            left_out=disturbances(request),
            good_to=_good_to(inputs, period_s),
        )
    if waits and request.standbys is not None and request.repair_s is not None and inputs.mtbf_s is not None:
        repair = simulation.Exponential(request.repair_s)
        standbys = simulation.Standbys(count=request.standbys, repair=repair, node_share=node_share)
        check = simulation.check(_Swaps(found), period_s, failures, seed, limit_s, standbys=standbys)
        return Trial(check=check, planned_ettr=exact.ettr_at(inputs, period_s), tiers=False, left_out=())
    if inputs.planned_stops_per_s and inputs.stop_downtime_s != inputs.downtime_s:
        inputs, left_out = replace(inputs, planned_stops_per_s=0.0), ("planned stops",)
    check = simulation.check(inputs, period_s, failures, seed, limit_s)
    return Trial(check=check, planned_ettr=exact.ettr_at(inputs, period_s), tiers=False, left_out=left_out)


def _good_to(inputs: Inputs, period_s: float) -> float:
    """Return how good the formula for tiers is: copies of a slow one begin with a save, up to a period later."""
    late = sum(share for share, drain_s in inputs.tiers if drain_s > period_s)
    return TIERS_GOOD_TO + late * inputs.faults_per_s * period_s / 2


def undisturbed(inputs: Inputs) -> Inputs:
    """Return the inputs of a job that only faults stop."""
    return replace(inputs, cluster_availability=1.0, planned_stops_per_s=0.0)


def disturbances(request: Request) -> tuple[str, ...]:
    """Return what stops the job besides faults, in words."""
    found = (
        ("the cluster's availability", request.cluster_availability < 1),
        ("planned stops", request.planned_stops_per_s > 0),
    )
    return tuple(name for name, there in found if there)


class _Swaps:
    """The inputs with the downtime of a swap alone: the simulation lets lost nodes wait for a repair by itself."""

    def __init__(self, found: Answer) -> None:
        inputs = found.inputs
        self.save_stall_s, self.mtbf_s, self.recovery_s = inputs.save_stall_s, inputs.mtbf_s, inputs.recovery_s
        self.downtime_s, self.drain_s = found.request.downtime_s, inputs.drain_s
        self.cluster_availability = inputs.cluster_availability
        self.planned_stops_per_s = found.request.planned_stops_per_s
