"""What would it take to reach the target, and what would be worth improving first?"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from reliability.domain.planner import exact
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.limits import recovery_limit, stall_limit
from reliability.domain.planner.roots import least_whole, summit
from reliability.errors import InvalidInput

_ROUNDING = 1e-12
_WIDTH = 1e-6
_MOST_NODES = 10**9


@dataclass(frozen=True, slots=True)
class Pair:
    """A stall and a recovery, in seconds, with which the target is just reachable."""

    save_stall_s: float
    recovery_s: float


@dataclass(frozen=True, slots=True)
class Gain:
    """How much the best effective training rate rises when one thing is halved (standbys: one more)."""

    name: str
    ettr_gain: float


def reachable(inputs: Inputs) -> bool:
    """Return whether some period keeps the target; cheaper than a plan."""
    return exact.best(inputs)[1] >= inputs.target * (1 - _ROUNDING)


def most_nodes(inputs_with: Callable[[int], Inputs], start: int) -> int | None:
    """Return the largest job that reaches the target.

    `inputs_with` gives the inputs for a number of nodes; more of them must not make anything better. `start` is a
    guess. None when not even one node does, or when nothing limits it.
    """

    def too_many(nodes: int) -> bool:
        return nodes > _MOST_NODES or (nodes > 0 and not _reachable(inputs_with, nodes))

    most = least_whole(too_many, min(max(start, 1), _MOST_NODES)) - 1
    return most if 1 <= most < _MOST_NODES else None


def _reachable(inputs_with: Callable[[int], Inputs], count: int) -> bool:
    """Without inputs that can be planned with, where stops on purpose take all time, nothing is reachable."""
    try:
        return reachable(inputs_with(count))
    except InvalidInput:
        return False


def least_standbys(inputs_with: Callable[[int], Inputs], most: int = 1024) -> int | None:
    """Return the least number of standbys with which the target is reachable, None when `most` are not enough.

    `inputs_with` gives the inputs for a number of standbys; more of them must not make anything worse.
    """
    if not reachable(inputs_with(most)):
        return None
    return least_whole(lambda standbys: reachable(inputs_with(standbys)), 0)


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

    def ease(recovery_s: float) -> float:
        return (stall_with(recovery_s) / stall_s) * (recovery_s / inputs.recovery_s)

    low, high = recovery_alone_s or 0.0, min(most_s, recovery_s)
    chosen = max((summit(ease, low, high, (high - low) * _WIDTH), low, high), key=ease)
    pair = Pair(stall_with(chosen), chosen)
    return pair if pair.save_stall_s > 0 and pair.recovery_s > 0 else None
