"""Which rank computes for longer than its like, before it meets the others?

Compared is the time a rank computes before a collective, told by the program: how long a whole step takes is the same
for all, since all wait for the slowest. Ranks are compared within one role (a stage of a pipeline, say), by median and
median absolute deviation. What is found moves nothing: a straggler costs speed, and a person knows what that is worth.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from reliability.domain.progress.limits import SIGMA_OF_MAD

LEAST_RANKS = 3
"""Of two ranks nobody can say which is the odd one."""


@dataclass(frozen=True)
class Computed:
    """How long a rank computed in a step, median of its last steps, seconds; and what it is for."""

    seconds: float
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class StragglerRule:
    """A rank lags when it computes longer than the median of its role by all of `least_s`, `share` of the median and
    `spreads` robust standard deviations; it is a straggler when it lags in `needed` of the last `windows` windows."""

    least_s: float = 0.010
    share: float = 0.10
    spreads: float = 6.0
    windows: int = 10
    needed: int = 8


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank that lags persistently. Times of the last window, seconds."""

    rank: int
    seconds: float
    usual_s: float
    lagged: int
    windows: int
    role: str = ""

    @property
    def evidence(self) -> str:
        """What was measured, in a sentence."""
        percent = 100 * (self.seconds / self.usual_s - 1) if self.usual_s > 0 else 0.0
        role = f" of the role {self.role}" if self.role else ""
        return (
            f"Rank {self.rank} computes {self.seconds:.3f} s before it meets the others, {percent:.0f} % more than the "
            f"median {self.usual_s:.3f} s of the ranks{role}; so in {self.lagged} of the last {self.windows} windows."
        )


@dataclass(frozen=True)
class Lag:
    """How a rank compares with its role in one window. `score` is in robust standard deviations, None without any."""

    seconds: float
    usual_s: float
    lags: bool
    score: float | None = None


def spread(window: Mapping[int, Computed], rule: StragglerRule) -> dict[int, Lag]:
    """Return how each rank of one window compares with the ranks of its role; roles of fewer than three have none."""
    roles: dict[str, list[int]] = defaultdict(list)
    for rank, computed in window.items():
        roles[computed.role].append(rank)
    found: dict[int, Lag] = {}
    for members in roles.values():
        if len(members) >= LEAST_RANKS:
            found |= _compared({rank: window[rank].seconds for rank in members}, rule)
    return found


def _compared(seconds: Mapping[int, float], rule: StragglerRule) -> dict[int, Lag]:
    usual_s = median(seconds.values())
    sigma_s = SIGMA_OF_MAD * median(abs(each - usual_s) for each in seconds.values())
    least_s = max(rule.least_s, rule.share * usual_s, rule.spreads * sigma_s)
    return {
        rank: Lag(each, usual_s, each - usual_s > least_s, (each - usual_s) / sigma_s if sigma_s > 0 else None)
        for rank, each in seconds.items()
    }


def find_stragglers(windows: Sequence[Mapping[int, Computed]], rule: StragglerRule) -> list[Straggler]:
    """Return the ranks that lag persistently, the oldest window first; none before there are enough windows."""
    last = windows[-rule.windows :]
    if len(last) < rule.windows:
        return []
    spreads = [spread(window, rule) for window in last]
    found = []
    for rank, lag in sorted(spreads[-1].items()):
        lagged = sum(each[rank].lags for each in spreads if rank in each)
        if lagged >= rule.needed:
            found.append(
                Straggler(
                    rank=rank,
                    seconds=lag.seconds,
                    usual_s=lag.usual_s,
                    lagged=lagged,
                    windows=len(last),
                    role=last[-1][rank].role,
                )
            )
    return found
