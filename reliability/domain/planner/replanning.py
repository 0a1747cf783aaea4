"""Is there reason to change a period that is in use, within limits that a person set?

The loss is flat around the best period and the rate of faults is never known well, so a change needs more than another
optimum: a period that differs clearly, a gain that counts, and data that rule the present period out.
"""

import math
from dataclasses import dataclass

from reliability.domain.planner import exact
from reliability.domain.planner.answered import Answer
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.inputs import check
from reliability.errors import InvalidInput

LEAST_GAIN = 0.0005
"""A twentieth of a point of the effective training rate: less is not worth a change."""
MOST_S = 1e9
MOST_RATIO = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a person allows: no period outside (seconds, start to start), no change by a smaller ratio.

    Raises InvalidInput, naming the field, for limits that leave no room.
    """

    target: float
    shortest_period_s: float
    longest_period_s: float
    change_ratio: float = 1.25
    least_interval_s: float = 3600.0

    def __post_init__(self) -> None:
        _inside("target", self.target, 1.0, "Give a share between 0 and 1, such as 0.97.")
        _inside("shortest_period", self.shortest_period_s, MOST_S, "Give a time above 0, such as 1 min.")
        _inside("longest_period", self.longest_period_s, MOST_S, "Give a time above 0, such as 1 h.")
        if self.longest_period_s <= self.shortest_period_s:
            raise InvalidInput(
                "longest_period",
                f"{spoken(self.longest_period_s)} is not above the shortest period of {spoken(self.shortest_period_s)}",
                hint="Leave room between the two.",
            )
        check("change_ratio", self.change_ratio, 1.0, MOST_RATIO, "Give a number above 1, such as 1.25.")
        if self.change_ratio == 1.0:
            raise InvalidInput("change_ratio", "1 would change at every look", hint="Give a number such as 1.25.")
        check("least_interval", self.least_interval_s, 0.0, MOST_S, "Give a time, 0 or longer, such as 1 h.")

    def allow(self, period_s: float) -> bool:
        """Return whether a period is within the limits."""
        return self.shortest_period_s <= period_s <= self.longest_period_s


def _inside(field: str, value: float, end: float, hint: str) -> None:
    check(field, value, 0.0, end, hint)
    if value == 0.0 or (value == end == 1.0):
        raise InvalidInput(field, f"{value:g} is not possible", hint=hint)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look came to: a sentence for people, and the number of steps to change to; None for no change."""

    told: str
    every_steps: int | None = None


def judge(limits: Limits, found: Answer, *, every_steps: int) -> Outcome:
    """Return whether the best period within the limits is worth a change from the present one.

    `found` is about a request with step_s and period_s. The period must differ by more than the ratio, gain at least
    LEAST_GAIN, and the present one must lie outside the credible band of the best period where there is one. A present
    period outside the limits is always brought inside. No change where the target cannot be kept: that needs a person.
    """
    step_s, present = found.request.step_s, found.present
    if step_s is None or present is None:
        raise InvalidInput("step_time", "is not known", hint="Wait until every rank has made a few steps.")
    best = _within(limits, found, step_s)
    if best is None:
        return Outcome("No change: no whole number of steps is a period within the limits.")
    period_s = best * step_s + found.inputs.save_stall_s
    rate, told = exact.ettr_at(found.inputs, period_s), f"{spoken(period_s)} ({best} steps)"
    if rate < limits.target:
        most = f"the best period within the limits, {told}, gives {_percent(rate)}"
        return Outcome(f"No change: the target of {_percent(limits.target)} cannot be kept; {most}.")
    if best == every_steps:
        return Outcome(f"No change: the best period is the present one, {told}.")
    if not limits.allow(present.period_s):
        return Outcome(f"The present period of {spoken(present.period_s)} is outside the limits; now {told}.", best)
    why_not = _not_worth_it(limits, found, period_s, told)
    if why_not:
        return Outcome(f"No change: {why_not}.")
    was = f"at {spoken(present.period_s)} it was {_percent(present.ettr)}"
    return Outcome(f"A period of {told} gives {_percent(rate)}; {was}.", best)


def _not_worth_it(limits: Limits, found: Answer, period_s: float, told: str) -> str:
    assert found.present is not None
    present_s = found.present.period_s
    ratio = max(period_s / present_s, present_s / period_s)
    if ratio <= limits.change_ratio:
        return f"the best period, {told}, is within {limits.change_ratio:g} times of the present one"
    gain = exact.ettr_at(found.inputs, period_s) - found.present.ettr
    if gain < LEAST_GAIN:
        return f"a period of {told} would gain only {max(0.0, 100 * gain):.3f} points"
    band = found.credible.period_s if found.credible else None
    if band is not None and band[0] <= present_s <= band[1]:
        return f"after so few faults the best period may be anything from {spoken(band[0])} to {spoken(band[1])}"
    return ""


def _within(limits: Limits, found: Answer, step_s: float) -> int | None:
    """Return the best number of steps within the limits: the rate rises up to the best period and falls from there."""
    stall_s = found.inputs.save_stall_s
    shortest = max(1, math.ceil((limits.shortest_period_s - stall_s) / step_s - 1e-9))
    longest = math.floor((limits.longest_period_s - stall_s) / step_s + 1e-9)
    if longest < shortest:
        return None
    best = found.steps.every_steps if found.steps else longest
    return min(max(best, shortest), longest)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
