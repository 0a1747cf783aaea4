"""Has a program that tells of no steps fallen quiet? All that is known of it are its output and its snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.domain.progress.limits import Limit, Rule, quiet_limit


@dataclass(frozen=True, kw_only=True)
class Output:
    """When a rank last wrote output. quiet_s: seconds since, None while nothing is known; longest_s: longest pause."""

    rank: int
    quiet_s: float | None
    longest_s: float | None = None


@dataclass(frozen=True)
class Quiet:
    """No rank wrote anything and no snapshot came for longer than the limit."""

    quiet_s: float
    limit: Limit

    @property
    def evidence(self) -> str:
        """What is known, and what is not."""
        return (
            f"No output and no snapshot for {self.quiet_s:.0f} s; limit {self.limit}. The program tells of no steps: "
            "whether it trains, and which rank stands still, is not known."
        )


def find_quiet(outputs: Sequence[Output], *, snapshot_s: float | None, rule: Rule) -> Quiet | None:
    """Return that a program fell quiet, None while it has not or one of its ranks is not heard of.

    `snapshot_s`: seconds since its last snapshot, None without any: a sign of life like output.
    """
    told = [each.quiet_s for each in outputs if each.quiet_s is not None]
    if not outputs or len(told) < len(outputs):
        return None
    quiet_s = min([*told, *([] if snapshot_s is None else [snapshot_s])])
    limit = quiet_limit(max((each.longest_s for each in outputs if each.longest_s is not None), default=None), rule)
    return Quiet(quiet_s, limit) if quiet_s >= limit.seconds else None
