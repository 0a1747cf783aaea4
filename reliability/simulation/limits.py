"""What may a simulation be asked for? Refusals name the argument and say what would be right."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from reliability.errors import InvalidInput

LEAST_FAILURES, MOST_FAILURES = 100, 5_000_000
MOST_LIMIT_S = 120.0
LARGEST = 1e100
MOST_SEED = 2**63 - 1


def refuse(field: str, message: str, hint: str = "") -> InvalidInput:
    """Return the error that names a field."""
    return InvalidInput(field, message, hint=hint)


def number(field: str, value: object) -> float:
    """Return a finite number that is not negative and at most 1e100; raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(field, "must be a number")
    if not 0 <= value <= LARGEST:
        raise refuse(field, f"must be a finite number from 0 to {LARGEST:g}")
    return float(value)


def positive(field: str, value: object, *, most: float = LARGEST) -> float:
    """Return a finite number above 0; raises InvalidInput."""
    checked = number(field, value)
    if not 0 < checked <= most:
        raise refuse(field, f"must be above 0 and at most {most:g}")
    return checked


def whole(field: str, value: object, *, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`; raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refuse(field, f"must be a whole number from {low} to {high}")
    return value


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to simulate: failures, the seed that makes it repeatable, and the seconds it may take."""

    failures: int
    seed: int
    limit_s: float

    def __post_init__(self) -> None:
        whole("failures", self.failures, low=LEAST_FAILURES, high=MOST_FAILURES)
        whole("seed", self.seed, low=0, high=MOST_SEED)
        positive("limit_s", self.limit_s, most=MOST_LIMIT_S)

    def clock(self) -> Callable[[], bool]:
        """Return a function that says whether the time is up."""
        end = time.monotonic() + self.limit_s
        return lambda: time.monotonic() >= end

    def too_short(self) -> InvalidInput:
        """Return the refusal of a time limit within which nothing can be said."""
        return refuse("limit_s", f"{self.limit_s:g} s do not suffice here", "Allow more, or ask for what is less rare.")

    def replicas(self, *, each: int = 100, most: int = 2000) -> int:
        """Return how many independent replicas to run, so that each sees about `each` failures."""
        return max(20, min(most, math.ceil(self.failures / each)))
