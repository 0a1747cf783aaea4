"""Which standby takes the slot, and is it fit (M3, M4)?"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Outcome of a validation. Only PASS makes a standby fit; no answer is never a pass."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is known of a standby. `validation_age_s` is None when it never passed; tier 1 is the best."""

    node: str
    tier: int
    healthy: bool
    held_by: str = ""
    occupied_by: str = ""
    preemptible: bool = False
    runtime_fits: bool = True
    image_present: bool = False
    warm: bool = False
    validation: Verdict | None = None
    validation_age_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A candidate with its place and the reasons in words. `eligible` is False when it may not be used."""

    candidate: Candidate
    eligible: bool
    preempts: bool
    fresh: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PairBandwidth:
    """Measured bandwidth between two nodes in one run, bytes per second."""

    first: str
    second: str
    bytes_per_s: float
