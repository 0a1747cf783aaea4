"""What does a person know about a job, before it is turned into the inputs of the model?

All times in seconds, all rates of the whole job. What is told in several ways (time between faults, or faults counted
over a time; one drain, or one for each storage tier; standbys) becomes the numbers of the model here.
"""

from dataclasses import dataclass, replace

from reliability.domain.planner import rates
from reliability.domain.planner import spares as standby
from reliability.domain.planner.inputs import Inputs, check
from reliability.domain.planner.rates import Observed, Posterior
from reliability.domain.planner.spares import Spares
from reliability.errors import InvalidInput

PRIORS = ("jeffreys", "fleet")
_MOST_LOAD = 1e9
_MOST_NODES = 10**9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the planner.

    Either `mtbf_s` (None: no faults) or `faults` counted in `exposure_s` seconds of running time; the second gives a
    credible interval too. `node_share` of the faults lose the node, and with it every copy but that on storage;
    `memory_share` lose the memory of the host but not its SSD; the rest lose no copy. `drain_s` and `drain_ssd_s` run
    from the end of the stall until the copy is durable there. `repair_s` is the mean time until a lost node is back.
    `planned_stops_per_s` counts stops per second of the available time. `observed_nodes`: on how many nodes the faults
    were counted, when that is not the number planned for; faults that lose a node grow with it, the others do not.
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
    observed_nodes: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput where two values do not go together."""
        if (self.faults is None) != (self.exposure_s is None):
            raise InvalidInput("exposure_s", "goes with faults", hint="Give both, or the time between faults.")
        if self.faults is not None and self.mtbf_s is not None:
            raise InvalidInput("mtbf_s", "is given in two ways", hint="Give it, or faults with the time they came in.")
        self._check_shares()
        if self.prior not in PRIORS:
            raise InvalidInput("prior", "is not known", hint=f"One of: {', '.join(PRIORS)}.")
        if self.prior == "fleet" and self.faults is not None and self.nodes is None:
            raise InvalidInput("nodes", "is missing", hint="The fleet's rate is one per node: give their number.")

    def _check_shares(self) -> None:
        for name in ("node_share", "memory_share"):
            check(name, getattr(self, name), 0.0, 1.0, "Give a share of the faults, such as 0.2.")
        for name in ("nodes", "observed_nodes"):
            if getattr(self, name) is not None:
                check(name, getattr(self, name), 1, _MOST_NODES, "Give how many nodes there are.")
        if self.node_share + self.memory_share > 1.0 + _ROUNDING:
            raise InvalidInput("memory_share", "makes more than all faults", hint="Both shares add up to 1 at most.")

    @property
    def posterior(self) -> Posterior | None:
        """What the counted faults say about the rate; None when none were counted."""
        if self.faults is None or self.exposure_s is None:
            return None
        observed = Observed(faults=self.faults, exposure_s=self.exposure_s)
        if self.prior == "fleet" and self.nodes is not None:
            return rates.posterior(observed, rates.fleet_prior(self.observed_nodes or self.nodes))
        return rates.posterior(observed)

    @property
    def growth(self) -> float:
        """How many times as many faults the planned job has as the observed one: (1 - q) + q N / N0, q = node_share."""
        if self.nodes is None or self.observed_nodes is None:
            return 1.0
        return (1.0 - self.node_share) + self.node_share * (self.nodes / self.observed_nodes)

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of the planned job's faults that lose a node, and that only lose the memory of the host."""
        growth = self.growth
        if growth == 1.0:
            return self.node_share, self.memory_share
        memory_share = self.memory_share / growth
        return max(0.0, 1.0 - (1.0 - self.node_share) / growth), memory_share

    @property
    def faults_per_s(self) -> float:
        """Faults of the planned job per second of running time: from the posterior mean where they were counted."""
        known = self.posterior
        if known is not None:
            return known.mean_per_s * self.growth
        return 0.0 if self.mtbf_s is None else self.growth / self.mtbf_s

    def on(self, nodes: int) -> "Request":
        """Return the request for another number of nodes, with the faults that so many bring."""
        return replace(self, nodes=nodes, observed_nodes=self.observed_nodes or self.nodes)

    @property
    def inputs(self) -> Inputs:
        """The inputs of the model. Raises InvalidInput where a value cannot be planned with."""
        return self.inputs_at(self.faults_per_s)

    def inputs_at(self, faults_per_s: float, *, standbys: int | None = None) -> Inputs:
        """Return the inputs at another rate of faults, or with another number of standbys."""
        asked = self if standbys is None else replace(self, standbys=standbys)
        tiers = self._tiers()
        every = not tiers or tiers[0][0] == 1.0
        return Inputs(
            save_stall_s=self.save_stall_s,
            mtbf_s=1.0 / faults_per_s if faults_per_s > 0 else None,
            recovery_s=self.recovery_s,
            target=self.target,
            downtime_s=asked.downtime_at(faults_per_s),
            drain_s=tiers[0][1] if tiers and every else 0.0,
            cluster_availability=self.cluster_availability,
            planned_stops_per_s=self.planned_stops_per_s,
            tiers=() if every else tiers,
            planned_downtime_s=self.downtime_s if asked.waits else None,
        )

    def _tiers(self) -> tuple[tuple[float, float], ...]:
        """Return the tiers that some fault has to wait for."""
        node_share, memory_share = self.shares
        both = ((node_share, self.drain_s), (memory_share, self.drain_ssd_s))
        return tuple((share, drain_s) for share, drain_s in both if share > 0 and drain_s > 0)

    @property
    def waits(self) -> bool:
        """Whether lost nodes may have to wait for a repair: standbys and the time of a repair are known."""
        return self.standbys is not None and self.repair_s is not None

    def load_at(self, faults_per_s: float) -> float:
        """Return the mean number of this job's nodes in repair: those lost per second times the time of a repair."""
        return min(self.shares[0] * faults_per_s * (self.repair_s or 0.0), _MOST_LOAD)

    def spares_at(self, faults_per_s: float) -> Spares | None:
        """Return how often a lost node finds a standby; None unless standbys and repair time are known."""
        if self.standbys is None or self.repair_s is None:
            return None
        return standby.spares(self.load_at(faults_per_s), self.standbys, self.repair_s)

    def downtime_at(self, faults_per_s: float) -> float:
        """Return the mean downtime of a fault: the swap, and for lost nodes without a standby the wait for a repair.

        On the safe side, see `spares.mean_downtime`: repairs that end during a downtime are left out.
        """
        if self.standbys is None or self.repair_s is None:
            return self.downtime_s
        missing = self.shares[0] * standby.erlang_b(self.standbys, self.load_at(faults_per_s))
        wait_s = standby.wait_s(self.downtime_s, self.repair_s, self.standbys)
        return self.downtime_s + missing * (wait_s - self.downtime_s)
