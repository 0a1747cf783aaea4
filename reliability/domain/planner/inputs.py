"""What does a plan start from, and which values can be planned with?"""

import math
from dataclasses import dataclass

from reliability.domain.planner import tiers
from reliability.domain.planner.durations import shown
from reliability.errors import InvalidInput

MOST_S = 1e100
LEAST_MTBF_S = 1e-100
_BIGGEST_EXPONENT = 700.0
_ROUNDING = 1e-9
_SECONDS = "Give seconds, 0 or more."
_SHARE = "Give a share such as 0.95, not a percentage."


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that decides how often a job saves; times in seconds.

    save_stall_s: how long one save blocks training, not the upload. mtbf_s: mean exposed time between faults of the
    whole job, None for no faults. recovery_s: restore and warm-up after a fault, itself exposed to faults.
    downtime_s: detection, queue and the swap of nodes, not exposed. drain_s: from the end of the stall until the copy
    is durable; one drain ends before the next begins. target: wanted effective training rate, between 0 and 1.
    cluster_availability: share of time in which the job can run at all, for stops that are not in downtime_s.
    planned_stops_per_s: stops on purpose per second of the available time, each with a save before it, and
    planned_downtime_s the downtime of one and of the faults within it (None: downtime_s; they wait for no repair).

    Where not every fault needs the copy on storage, `tiers` takes the place of drain_s: pairs (share of the faults that
    need the tier, its drain in seconds); faults in no tier lose no copy. A tier that is slower than the period copies
    back to back, so that only drain_s, which every fault needs, is a bound of the period.

    Raises InvalidInput, naming the field, where a value cannot be planned with.
    """

    save_stall_s: float
    mtbf_s: float | None
    recovery_s: float
    target: float
    downtime_s: float = 0.0
    drain_s: float = 0.0
    cluster_availability: float = 1.0
    planned_stops_per_s: float = 0.0
    tiers: tuple[tuple[float, float], ...] = ()
    planned_downtime_s: float | None = None

    def __post_init__(self) -> None:
        check("save_stall_s", self.save_stall_s, 0.0, MOST_S, _SECONDS)
        check("recovery_s", self.recovery_s, 0.0, MOST_S, _SECONDS)
        check("downtime_s", self.downtime_s, 0.0, MOST_S, _SECONDS)
        check("drain_s", self.drain_s, 0.0, MOST_S, _SECONDS)
        if self.tiers:
            self._check_tiers()
        if self.planned_downtime_s is not None:
            check("planned_downtime_s", self.planned_downtime_s, 0.0, MOST_S, _SECONDS)
        if self.mtbf_s is not None:
            check("mtbf_s", self.mtbf_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0, or nothing for no faults.")
        check("target", self.target, 0.0, 1.0, _SHARE)
        if self.target in (0.0, 1.0):
            raise InvalidInput("target", f"{self.target:g} is not between 0 and 1", hint=_SHARE)
        check("cluster_availability", self.cluster_availability, 0.0, 1.0, _SHARE)
        if self.cluster_availability == 0.0:
            raise InvalidInput("cluster_availability", "0 leaves no time to train", hint=_SHARE)
        check("planned_stops_per_s", self.planned_stops_per_s, 0.0, MOST_S, "Give stops per second, 0 or more.")
        if self.planned_stops_per_s and self.available <= 0.0:
            raise InvalidInput(
                "planned_stops_per_s",
                f"planned stops of {planned_stop_s(self.mtbf_s, self.recovery_s, self.stop_downtime_s):.4g} s each "
                "take all of the time",
                hint="Give fewer planned stops, or a shorter recovery or downtime.",
            )

    def _check_tiers(self) -> None:
        if self.drain_s:
            raise InvalidInput("drain_s", "is given in two ways", hint="Give it, or the drain of each tier.")
        for share, drain_s in self.tiers:
            check("tiers", share, 0.0, 1.0, _SHARE)
            check("tiers", drain_s, 0.0, MOST_S, _SECONDS)
        if math.fsum(share for share, _ in self.tiers) > 1.0 + _ROUNDING:
            raise InvalidInput("tiers", "need more than all faults", hint="The shares add up to 1 at most.")

    @property
    def mean_drain_s(self) -> float:
        """The drain that a fault waits for, on average over all faults."""
        return math.fsum(share * drain_s for share, drain_s in self.tiers) if self.tiers else self.drain_s

    @property
    def slowest_s(self) -> float:
        """The longest drain; at a period that is not shorter, every tier follows every save."""
        return max(drain_s for _, drain_s in self.tiers) if self.tiers else self.drain_s

    @property
    def lags(self) -> tuple[tuple[float, float], ...]:
        """The tiers, or the one drain as a tier that every fault needs."""
        return self.tiers or ((1.0, self.drain_s),)

    def lag_s(self, period_s: float) -> float:
        """Return by how much a fault finds its newest copy too old: the drains, and more where tiers lag behind."""
        if period_s >= self.slowest_s or self.mtbf_s is None:
            return self.mean_drain_s
        return self.mean_drain_s + self.mtbf_s * tiers.behind(self.lags, self.mtbf_s, period_s)

    @property
    def stop_downtime_s(self) -> float:
        """The downtime of a planned stop."""
        return self.downtime_s if self.planned_downtime_s is None else self.planned_downtime_s

    @property
    def faults_per_s(self) -> float:
        """Faults of the whole job per second of exposed time; 0 for none."""
        return 0.0 if self.mtbf_s is None else 1.0 / self.mtbf_s

    @property
    def available(self) -> float:
        """Share of time that is left for training and its faults: A (1 - nu C), see `available_share`."""
        if not self.planned_stops_per_s:
            return self.cluster_availability
        return available_share(self, self.mtbf_s, self.recovery_s)


def planned_stop_s(mtbf_s: float | None, recovery_s: float, downtime_s: float) -> float:
    """Return the mean seconds of one planned stop, C = D + (1/lambda + D) (e^(lambda R) - 1); D + R without faults.

    A fault during the recovery costs the downtime and begins the recovery again; nothing is rolled back, since a save
    precedes the stop. Infinite where a recovery practically never ends.
    """
    if mtbf_s is None:
        return downtime_s + recovery_s
    ratio = recovery_s / mtbf_s
    if ratio > _BIGGEST_EXPONENT:
        return math.inf
    return downtime_s + (mtbf_s + downtime_s) * math.expm1(ratio)


def available_share(inputs: Inputs, mtbf_s: float | None, recovery_s: float) -> float:
    """Return A (1 - nu C) for other faults and another recovery than those of the inputs; at least 0."""
    stops = inputs.planned_stops_per_s
    if not stops:
        return inputs.cluster_availability
    stop_s = planned_stop_s(mtbf_s, recovery_s, inputs.stop_downtime_s)
    return inputs.cluster_availability * max(0.0, 1.0 - stops * stop_s)


def check(field: str, value: object, low: float, high: float, hint: str) -> None:
    """Raise InvalidInput, naming the field, unless the value is a finite number from low to high."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"{value!r} is not a number", hint=hint)
    if low <= value <= high:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(field, f"{value} is not a finite number", hint=hint)
    raise InvalidInput(field, f"{shown(value)} is not between {low:g} and {high:g}", hint=hint)


def check_period(inputs: Inputs, period_s: float) -> None:
    """Raise InvalidInput unless a job can save in this period: seconds above 0, or 0 where a save takes no time."""
    check("period_s", period_s, 0.0, math.inf, "Give seconds above 0.")
    if period_s == 0 and inputs.save_stall_s:
        raise InvalidInput("period_s", "0 leaves no time for the stall", hint="Give seconds above 0.")
    if period_s == math.inf:
        raise InvalidInput("period_s", "inf is not a finite number", hint="Give seconds above 0.")
