"""What does a plan start from, and which values can be planned with?"""

import math
from dataclasses import dataclass

from reliability.errors import InvalidInput

MOST_S = 1e100
LEAST_MTBF_S = 1e-100
_BIGGEST_EXPONENT = 700.0
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
    planned_stops_per_s: stops on purpose per second of calendar time, each with a save before it.

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

    def __post_init__(self) -> None:
        check("save_stall_s", self.save_stall_s, 0.0, MOST_S, _SECONDS)
        check("recovery_s", self.recovery_s, 0.0, MOST_S, _SECONDS)
        check("downtime_s", self.downtime_s, 0.0, MOST_S, _SECONDS)
        check("drain_s", self.drain_s, 0.0, MOST_S, _SECONDS)
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
                f"planned stops of {planned_stop_s(self.mtbf_s, self.recovery_s, self.downtime_s):.4g} s each take "
                "all of the time",
                hint="Give fewer planned stops, or a shorter recovery or downtime.",
            )

    @property
    def faults_per_s(self) -> float:
        """Faults of the whole job per second of exposed time; 0 for none."""
        return 0.0 if self.mtbf_s is None else 1.0 / self.mtbf_s

    @property
    def available(self) -> float:
        """Share of time that is left for training and its faults: A (1 - nu C), see `available_share`."""
        if not self.planned_stops_per_s:
            return self.cluster_availability
        return available_share(self, self.mtbf_s, self.recovery_s, self.downtime_s)


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


def available_share(inputs: Inputs, mtbf_s: float | None, recovery_s: float, downtime_s: float) -> float:
    """Return A (1 - nu C) for other faults, recovery and downtime than those of the inputs; at least 0."""
    stops = inputs.planned_stops_per_s
    if not stops:
        return inputs.cluster_availability
    return inputs.cluster_availability * max(0.0, 1.0 - stops * planned_stop_s(mtbf_s, recovery_s, downtime_s))


def check(field: str, value: object, low: float, high: float, hint: str) -> None:
    """Raise InvalidInput, naming the field, unless the value is a finite number from low to high."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"{value!r} is not a number", hint=hint)
    if low <= value <= high:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(field, f"{value} is not a finite number", hint=hint)
    raise InvalidInput(field, f"{shown(value)} is not between {low:g} and {high:g}", hint=hint)


def shown(value: int | float) -> str:
    """Write a number for a message; a whole number too large for a float by its number of digits."""
    try:
        return f"{value:g}"
    except OverflowError:
        return "a number beyond all measure"


def check_period(inputs: Inputs, period_s: float) -> None:
    """Raise InvalidInput unless a job can save in this period: seconds above 0, or 0 where a save takes no time."""
    check("period_s", period_s, 0.0, math.inf, "Give seconds above 0.")
    if period_s == 0 and inputs.save_stall_s:
        raise InvalidInput("period_s", "0 leaves no time for the stall", hint="Give seconds above 0.")
    if period_s == math.inf:
        raise InvalidInput("period_s", "inf is not a finite number", hint="Give seconds above 0.")
