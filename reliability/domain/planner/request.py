"""What does a person know about a job, before it is turned into the inputs of the model?

All times in seconds, all rates of the whole job. What is told in several ways (time between faults, or faults counted
over a time; one drain, or one for each storage tier; standbys) becomes one number of the model here.
"""

import math
from dataclasses import dataclass, replace

from reliability.domain.planner import levels, rates
from reliability.domain.planner import spares as standby
from reliability.domain.planner.inputs import Inputs, planned_stop_s
from reliability.domain.planner.rates import Observed, Posterior
from reliability.domain.planner.spares import Spares
from reliability.errors import InvalidInput

PRIORS = ("jeffreys", "fleet")
_MOST_LOAD = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the planner.

    Either `mtbf_s` (None: no faults) or `faults` counted in `exposure_s` seconds of running time; the second gives a
    credible interval too. `node_share` of the faults lose the node, and with it every copy but that on storage;
    `memory_share` lose the memory of the host but not its SSD; the rest lose no copy. `drain_s` and `drain_ssd_s` run
    from the end of the stall until the copy is durable there. `repair_s` is the mean time until a lost node is back.
    `period_s` is the present period, start to start, to compare with.
    """

    save_stall_s: float
    recovery_s: float
    target: float
    mtbf_s: float | None = None
    faults: int | None = None
    exposure_s: float | None = None
    prior: str = "jeffreys"
    downtime_s: float = 0.0
    drain_s: float = 0.0
    drain_ssd_s: float = 0.0
    node_share: float = 1.0
    memory_share: float = 0.0
    cluster_availability: float = 1.0
    planned_stops_per_s: float = 0.0
    step_s: float | None = None
    nodes: int | None = None
    standbys: int | None = None
    repair_s: float | None = None
    period_s: float | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput where two values do not go together."""
        if (self.faults is None) != (self.exposure_s is None):
            raise InvalidInput("exposure_s", "goes with faults", hint="Give both, or the time between faults.")
        if self.faults is not None and self.mtbf_s is not None:
            raise InvalidInput("mtbf_s", "is given in two ways", hint="Give it, or faults with the time they came in.")
        if self.node_share + self.memory_share > 1.0:
            raise InvalidInput("memory_share", "makes more than all faults", hint="Both shares add up to 1 at most.")
        if self.prior not in PRIORS:
            raise InvalidInput("prior", "is not known", hint=f"One of: {', '.join(PRIORS)}.")
        if self.prior == "fleet" and self.faults is not None and self.nodes is None:
            raise InvalidInput("nodes", "is missing", hint="The fleet's rate is one per node: give their number.")

    @property
    def posterior(self) -> Posterior | None:
        """What the counted faults say about the rate; None when none were counted."""
        if self.faults is None or self.exposure_s is None:
            return None
        observed = Observed(faults=self.faults, exposure_s=self.exposure_s)
        if self.prior == "fleet" and self.nodes is not None:
            return rates.posterior(observed, rates.fleet_prior(self.nodes))
        return rates.posterior(observed)

    @property
    def faults_per_s(self) -> float:
        """Faults of the job per second of running time: the posterior mean where they were counted."""
        known = self.posterior
        if known is not None:
            return known.mean_per_s
        return 0.0 if self.mtbf_s is None else 1.0 / self.mtbf_s

    @property
    def inputs(self) -> Inputs:
        """The inputs of the model. Raises InvalidInput where a value cannot be planned with."""
        return self.inputs_at(self.faults_per_s)

    def inputs_at(self, faults_per_s: float, *, standbys: int | None = None) -> Inputs:
        """Return the inputs at another rate of faults, or with another number of standbys."""
        asked = self if standbys is None else replace(self, standbys=standbys)
        downtime_s = asked.downtime_at(faults_per_s)
        return Inputs(
            save_stall_s=self.save_stall_s,
            mtbf_s=1.0 / faults_per_s if faults_per_s > 0 else None,
            recovery_s=self.recovery_s,
            target=self.target,
            downtime_s=downtime_s,
            drain_s=self.drain_at(faults_per_s),
            cluster_availability=self.cluster_availability,
            planned_stops_per_s=self._stops(faults_per_s, downtime_s),
        )

    def _stops(self, faults_per_s: float, downtime_s: float) -> float:
        """Return planned stops so that they cost the same: they lose no node, so they never wait for a repair."""
        if not self.planned_stops_per_s or downtime_s == self.downtime_s:
            return self.planned_stops_per_s
        mtbf_s = 1.0 / faults_per_s if faults_per_s > 0 else None
        own_s = planned_stop_s(mtbf_s, self.recovery_s, self.downtime_s)
        return self.planned_stops_per_s * own_s / planned_stop_s(mtbf_s, self.recovery_s, downtime_s)

    def drain_at(self, faults_per_s: float) -> float:
        """Return the one drain that loses as much as the drains of all tiers, each at its own faults.

        A tier that cannot follow every save copies back to back, so its newest copy is older by half of what the
        drain is longer than the period; without that when every fault needs that tier, because then the period waits.
        """
        if self.node_share == 1.0:
            return self.drain_s
        mtbf_s = 1.0 / faults_per_s if faults_per_s > 0 else None
        tiers = ((self.node_share, self.drain_s), (self.memory_share, self.drain_ssd_s))
        best_s = math.inf if mtbf_s is None else math.sqrt(2.0 * self.save_stall_s * mtbf_s)
        period_s = max(best_s, sum(share * drain_s for share, drain_s in tiers))
        lags = [(share, drain_s + max(0.0, drain_s - period_s) / 2) for share, drain_s in tiers]
        lags.append((max(0.0, 1.0 - self.node_share - self.memory_share), 0.0))
        return levels.drain_over_classes(mtbf_s, lags)

    def load_at(self, faults_per_s: float) -> float:
        """Return the mean number of this job's nodes in repair: those lost per second times the time of a repair."""
        return min(self.node_share * faults_per_s * (self.repair_s or 0.0), _MOST_LOAD)

    def spares_at(self, faults_per_s: float) -> Spares | None:
        """Return how often a lost node finds a standby; None unless standbys and repair time are known."""
        if self.standbys is None or self.repair_s is None:
            return None
        return standby.spares(self.load_at(faults_per_s), self.standbys, self.repair_s)

    def downtime_at(self, faults_per_s: float) -> float:
        """Return the mean downtime of a fault: the swap, and for lost nodes without a standby the wait for a repair."""
        if self.standbys is None or self.repair_s is None:
            return self.downtime_s
        missing = self.node_share * standby.erlang_b(self.standbys, self.load_at(faults_per_s))
        return (1.0 - missing) * self.downtime_s + missing * self.repair_s / (self.standbys + 1)
