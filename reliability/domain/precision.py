"""How often were decisions right? Counts, the precision, its lower bound, and whether that is enough.

Precision is right / (right + wrong). Unclear verdicts and missing ones are told beside it and count neither way.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from reliability.domain.modes import Need

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""


class Verdict(StrEnum):
    """Whether a decision was the right one."""

    RIGHT = "right"
    WRONG = "wrong"
    UNCLEAR = "unclear"


class Source(StrEnum):
    """Who came to a verdict; a person outranks what happened next."""

    PERSON = "person"
    OUTCOME = "outcome"


def wilson_lower(right: int, total: int) -> float:
    """Return the lower end of the two-sided 95 % Wilson score interval of a share, 0 when nothing was counted.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if total <= 0:
        return 0.0
    share, z2 = right / total, Z_95 * Z_95
    middle = share + z2 / (2 * total)
    spread = Z_95 * sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return max(0.0, (middle - spread) / (1 + z2 / total))


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many decisions there are, and with which verdict."""

    right: int = 0
    wrong: int = 0
    unclear: int = 0
    missing: int = 0

    @property
    def decided(self) -> int:
        """Those that precision is about."""
        return self.right + self.wrong

    @property
    def total(self) -> int:
        """All of them."""
        return self.decided + self.unclear + self.missing

    @property
    def precision(self) -> float | None:
        """The share of right ones, None while none is decided."""
        return self.right / self.decided if self.decided else None

    @property
    def lower_bound(self) -> float | None:
        """The lower end of its 95 % interval, None while none is decided."""
        return wilson_lower(self.right, self.decided) if self.decided else None


def shortfall(counts: Counts, need: Need) -> str:
    """Return in words what is missing for automatic action, '' when the need is met.

    The share itself is compared, over at least so many decisions with a verdict; the lower bound is shown beside it.
    """
    if counts.decided < need.decisions:
        return f"{counts.decided} of {need.decisions} decisions have a verdict of right or wrong."
    share = counts.right / counts.decided
    if share < need.precision:
        return f"{counts.right} of {counts.decided} were right, {share:.1%}; {need.precision:.1%} are needed."
    return ""
