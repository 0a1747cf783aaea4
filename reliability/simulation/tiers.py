"""Does a plan hold whose copies go to memory, SSD and storage, each needed by a share of the faults?

Every save is in memory at once; SSD and storage get it when their drain has ended. A tier that cannot follow every
save takes each second, third, ... one, so that its drains do not overlap. Drains go on through faults of the classes
below.
"""

import math
from dataclasses import dataclass

from reliability.simulation.checking import JobInputs
from reliability.simulation.ledger import Check
from reliability.simulation.levels import MOST_SEGMENTS, Level, check_levels
from reliability.simulation.limits import LARGEST, number, positive, refuse

_WHOLE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """Which share of the faults leaves only the copy on storage, or that and the one on the SSD; drains in seconds."""

    node_share: float
    memory_share: float
    drain_s: float
    drain_ssd_s: float

    def __post_init__(self) -> None:
        for name in ("node_share", "memory_share", "drain_s", "drain_ssd_s"):
            number(name, getattr(self, name))
        if self.node_share + self.memory_share > 1 + _WHOLE:
            raise refuse("memory_share", "makes more than all faults", "Both shares add up to 1 at most.")

    @property
    def differ(self) -> bool:
        """Tell whether some faults wait for another drain than others do."""
        slow = (self.node_share > 0 and self.drain_s > 0) or (self.memory_share > 0 and self.drain_ssd_s > 0)
        return slow and self.node_share < 1


def check_tiers(
    inputs: JobInputs, tiers: Tiers, period_s: float, failures: int = 100_000, seed: int = 1, limit_s: float = 30.0
) -> Check:
    """Simulate a job that saves every `period_s` (start to start) to all tiers.

    Leaves out `inputs.drain_s`, which the tiers replace, the cluster's availability and planned stops. Raises
    InvalidInput as `check_levels` does, and where no fault needs a copy that drains, or there are no faults.
    """
    if inputs.mtbf_s is None or not tiers.differ:
        raise refuse("node_share", "leaves nothing to simulate on tiers", "Simulate it with one drain instead.")
    positive("period_s", period_s)
    if period_s <= inputs.save_stall_s:
        raise refuse("period_s", "leaves no time to train between saves")
    levels = _levels(inputs, inputs.mtbf_s, tiers, period_s)
    return check_levels(levels, period_s - inputs.save_stall_s, inputs.downtime_s, failures, seed, limit_s)


def _levels(inputs: JobInputs, mtbf_s: float, tiers: Tiers, period_s: float) -> list[Level]:
    quick = max(0.0, 1.0 - tiers.node_share - tiers.memory_share)
    memory = Level(
        extra_stall_s=inputs.save_stall_s, mtbf_s=_between(mtbf_s, quick), recovery_s=inputs.recovery_s, every=1
    )
    found = [memory]
    for field, share, drain_s in (
        ("drain_ssd_s", tiers.memory_share, tiers.drain_ssd_s),
        ("drain_s", tiers.node_share, tiers.drain_s),
    ):
        if share <= 0:
            continue
        below = found[-1].every
        every = below * max(1, math.ceil(min(drain_s / period_s / below, LARGEST) - _WHOLE))
        if every > MOST_SEGMENTS:
            raise refuse(field, f"takes longer than {MOST_SEGMENTS} periods")
        found.append(
            Level(
                extra_stall_s=0.0,
                mtbf_s=_between(mtbf_s, share),
                recovery_s=inputs.recovery_s,
                every=every,
                drain_s=min(drain_s, every * period_s),
                drain_survives=True,
            )
        )
    return found


def _between(mtbf_s: float, share: float) -> float:
    """Return the mean time between the faults of a class; never for a class that has none."""
    return min(mtbf_s / share, LARGEST) if share > mtbf_s / LARGEST else LARGEST
