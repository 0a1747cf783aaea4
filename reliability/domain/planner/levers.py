"""What would it take to reach the target, and what would be worth improving first?"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from reliability.domain.planner import exact
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.limits import recovery_limit, stall_limit

_ROUNDING = 1e-12
_GOLDEN = (math.sqrt(5) - 1) / 2
_SECTIONS = 45


@dataclass(frozen=True, slots=True)
class Pair:
    """A stall and a recovery, in seconds, with which the target is just reachable."""

    save_stall_s: float
    recovery_s: float


@dataclass(frozen=True, slots=True)
class Gain:
    """How much the best effective training rate rises when one input alone is halved."""

    name: str
    ettr_gain: float


def reachable(inputs: Inputs) -> bool:
    """Return whether some period keeps the target; cheaper than a plan."""
    return exact.best(inputs)[1] >= inputs.target * (1 - _ROUNDING)


def most_nodes(inputs: Inputs, nodes: int, mtbf_limit_s: float | None) -> int | None:
    """Return the largest job that reaches the target when the rate of faults grows with the number of nodes.

    N = nodes * mtbf_s / mtbf_limit_s, rounded down. None when not even one node does, or when nothing limits it: no
    faults, or no limit of the time between them.
    """
    if inputs.mtbf_s is None or mtbf_limit_s is None:
        return None
    most = math.floor(nodes * (inputs.mtbf_s / mtbf_limit_s) * (1 + _ROUNDING))
    return most if most >= 1 else None


def least_standbys(inputs_with: Callable[[int], Inputs], most: int = 1024) -> int | None:
    """Return the least number of standbys with which the target is reachable, None when `most` are not enough.

    `inputs_with` gives the inputs for a number of standbys; more of them must not make anything worse.
    """
    if not reachable(inputs_with(most)):
        return None
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reachable(inputs_with(middle)) else (middle, high)
    return high


def cheapest_pair(inputs: Inputs) -> Pair | None:
    """Return the stall and the recovery that reach the target together with the least effort.

    The effort is ln(O/O') + ln(R/R'): halving either costs the same. Minimised subject to E_max(O', R') = target, with
    O' <= O and R' <= R, by golden section over R'. The inputs as they are when these reach the target already; None
    when both at 0 do not, or where either is 0 and the other alone is not enough.
    """
    stall_s, recovery_s = inputs.save_stall_s, inputs.recovery_s
    if reachable(inputs):
        return Pair(stall_s, recovery_s)
    most_s = recovery_limit(replace(inputs, save_stall_s=0.0))
    if inputs.mtbf_s is None or most_s is None:
        return None
    recovery_alone_s, stall_alone_s = recovery_limit(inputs), stall_limit(inputs)
    if stall_s == 0:
        return Pair(0.0, recovery_alone_s) if recovery_alone_s else None
    if recovery_s == 0:
        return Pair(stall_alone_s, 0.0) if stall_alone_s else None

    def stall_with(recovery_s: float) -> float:
        return min(stall_limit(replace(inputs, recovery_s=recovery_s)) or 0.0, stall_s)

    def effort(recovery_s: float) -> float:
        product = (stall_with(recovery_s) / stall_s) * (recovery_s / inputs.recovery_s)
        return -math.log(product) if product > 0 else math.inf

    low, high = recovery_alone_s or 0.0, min(most_s, recovery_s)
    chosen = min((_least(effort, low, high), low, high), key=effort)
    pair = Pair(stall_with(chosen), chosen)
    return pair if pair.save_stall_s > 0 and pair.recovery_s > 0 else None


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one minimum is least between two points (golden section)."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_SECTIONS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2


def halved(inputs: Inputs) -> tuple[Gain, ...]:
    """Return what halving each input alone adds to the best effective training rate, the most first.

    The names are save_stall, recovery, downtime, drain and fault_rate; the period is chosen anew each time.
    """
    now = exact.best(inputs)[1]
    changed = {
        "save_stall": replace(inputs, save_stall_s=inputs.save_stall_s / 2),
        "recovery": replace(inputs, recovery_s=inputs.recovery_s / 2),
        "downtime": replace(inputs, downtime_s=inputs.downtime_s / 2),
        "drain": replace(inputs, drain_s=inputs.drain_s / 2),
        "fault_rate": inputs if inputs.mtbf_s is None else replace(inputs, mtbf_s=inputs.mtbf_s * 2),
    }
    gains = [Gain(name, max(0.0, exact.best(better)[1] - now)) for name, better in changed.items()]
    return tuple(sorted(gains, key=lambda gain: -gain.ettr_gain))
