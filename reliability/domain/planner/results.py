"""What does a model answer: a period, what it gives, and what it would take to reach the target otherwise?"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the time goes, as shares of all time that add up to 1.

    useful: updates that are kept. saving: stalls of kept work. rollback: work and stalls that are done again.
    recovery: restore and warm-up. downtime: everything in which the job does not run, including the time in which the
    cluster cannot run it.
    """

    useful: float
    saving: float
    rollback: float
    recovery: float
    downtime: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What one input alone would have to be for the target to be just reachable, with the period chosen anew.

    The stall and the recovery at most, the time between faults at least, in seconds. None where that input alone is
    not enough, or where nothing limits it.
    """

    save_stall_s: float | None
    recovery_s: float | None
    mtbf_s: float | None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The best period by one model. Periods count from the start of one save to the start of the next.

    `period_s` and `work_s` (the period without the stall) are None without faults, where longer is better; what to
    use then is the low end of the interval. `ettr_max` is the best effective training rate; by first order it may be
    negative, which says that the model does not describe these inputs. `interval_s` holds the periods that keep the
    target, its upper end None where there is none; the whole is None where the target cannot be reached.
    """

    model: str
    period_s: float | None
    work_s: float | None
    ettr_max: float
    feasible: bool
    interval_s: tuple[float, float | None] | None
    shares: Shares
    limits: Limits
