"""Where did the time of a recovery go, and how much work was lost?"""

from collections.abc import Sequence
from itertools import pairwise


def stage_times(events: Sequence[tuple[float, str]]) -> list[tuple[str, float]]:
    """Return the stages of a recovery in order with the seconds spent in each.

    `events` are (instant in seconds, stage entered) in the order they were recorded. Entering the stage one is in
    already goes on with it. The last stage has no end yet and is not listed; a clock that was set back counts as 0.
    """
    stages: list[tuple[str, float]] = []
    for (began, stage), (ended, _) in pairwise(events):
        spent = max(0.0, ended - began)
        if stages and stages[-1][0] == stage:
            spent += stages.pop()[1]
        stages.append((stage, spent))
    return stages


def totals(stages: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds of each stage over all its visits, in the order of the first visit."""
    summed: dict[str, float] = {}
    for stage, seconds in stages:
        summed[stage] = summed.get(stage, 0.0) + seconds
    return summed


def lost_steps(fault_step: int | None, restored_step: int | None) -> int | None:
    """Return how many finished steps are done again; None when the step of the fault is not known.

    `restored_step` None means a start from nothing, so that every step counts.
    """
    if fault_step is None:
        return None
    return max(0, fault_step - (restored_step or 0))


def kept_rate(*, executed: int, lost: int, running_s: float, saving_s: float, window_s: float) -> float:
    """Return the share of a window that went into steps which were kept: the effective training rate, 0 to 1.

    (executed - lost) / executed * (running_s - saving_s) / window_s, seconds; `lost` of the executed steps were undone.
    The second factor is the time in which steps were made; the time of one step drops out.
    """
    kept = max(0, executed - lost) / executed
    return kept * max(0.0, running_s - saving_s) / window_s
