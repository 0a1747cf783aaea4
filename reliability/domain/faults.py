"""What do findings mean: which class of fault, which action, which of them is the root (M9)?"""

from dataclasses import dataclass
from enum import StrEnum


class FaultClass(StrEnum):
    """Class of a fault."""

    HARDWARE = "hardware"
    SOFTWARE = "software"
    APPLICATION = "application"
    NETWORK = "network"
    STORAGE = "storage"
    THERMAL = "thermal"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What is to be done, mildest first."""

    OBSERVE = "observe"
    HOLD = "hold"
    RESTART_IN_PLACE = "restart_in_place"
    FAILOVER = "failover"


class Severity(StrEnum):
    """How bad a finding is by itself, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


@dataclass(frozen=True, kw_only=True)
class FaultCode:
    """One row of the fault-code table. A follow-up code never decides alone."""

    code: str
    meaning: str
    fault_class: FaultClass
    action: Action
    severity: Severity
    advice: str
    follow_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation. `at` is the server's receive time, seconds; `order` is the order of arrival."""

    code: str
    node: str
    at: float
    order: int
    rank: int | None = None
    epoch: int | None = None
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a set of findings comes to. `undecided` means: wait, only follow-up codes are known so far."""

    fault_class: FaultClass
    action: Action
    root: Finding | None
    reasons: tuple[str, ...]
    undecided: bool = False
