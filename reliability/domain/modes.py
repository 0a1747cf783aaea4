"""How much is done by itself when judging comes to an action: nothing (observe only), a proposal, or the action.

People set it per fault code, family of codes, or for all codes, each for all nodes or for those of one failure domain.
The most specific rule wins: a code before its family before all codes, and within each a failure domain before all
nodes. Without any rule it is automatic, which never does more than the job's own approval setting allows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from reliability.domain.failover import Kind
from reliability.domain.policy import Approval
from reliability.errors import InvalidInput

LEAST_PRECISION = 0.5
"""Less than every second decision right unlocks nothing: a coin would do as well."""
MOST_DECISIONS = 100_000


class Mode(StrEnum):
    """What becomes of a decision, the mildest first. `shadow`: it is kept, and nothing is done."""

    SHADOW = "shadow"
    PROPOSE = "propose"
    AUTOMATIC = "automatic"


WORDS = {Mode.SHADOW: "observe only", Mode.PROPOSE: "propose", Mode.AUTOMATIC: "automatic"}


class Reach(StrEnum):
    """Which codes a rule is about, the most specific first."""

    CODE = "code"
    FAMILY = "family"
    ALL = "all"


class Rule(Protocol):
    """What a rule tells. `name` is the code or family, '' for all; `group` a failure domain, '' for all nodes."""

    @property
    def reach(self) -> str:
        """Which codes it is about."""

    @property
    def name(self) -> str:
        """The code or the family."""

    @property
    def group(self) -> str:
        """The failure domain."""


R = TypeVar("R", bound=Rule)


def most_specific(rules: Iterable[R], *, code: str, family: str, group: str) -> R | None:
    """Return the rule that decides for a code of this family on a node of this failure domain, None when none does."""
    names = {Reach.CODE: code, Reach.FAMILY: family, Reach.ALL: ""}
    order = list(Reach)
    fitting = [
        rule
        for rule in rules
        if names[Reach(rule.reach)] == rule.name
        and rule.group in ("", group)
        and (rule.name or rule.reach == Reach.ALL)
    ]
    return min(fitting, key=lambda rule: (order.index(Reach(rule.reach)), rule.group == ""), default=None)


def bounded(mode: Mode, *, kind: Kind | None, approval: Approval) -> Mode:
    """Return the mode that is in force for a recovery of this kind: a job's own approval is the upper bound.

    A restart in place asks for no approval of the job; `kind` is None for what is no recovery, such as a hold.
    """
    asks = kind is Kind.FAILOVER and approval is Approval.MANUAL
    return Mode.PROPOSE if mode is Mode.AUTOMATIC and asks else mode


@dataclass(frozen=True, kw_only=True)
class Need:
    """What evidence unlocks automatic action: a share of right decisions, and how many must have a verdict."""

    precision: float
    decisions: int

    def __post_init__(self) -> None:
        """Raise InvalidInput for what could never be met, or would unlock anything."""
        if not LEAST_PRECISION <= self.precision <= 1.0:
            raise InvalidInput(
                "needed_precision",
                f"{self.precision} cannot be asked for",
                hint=f"Give a share from {LEAST_PRECISION} to 1, as 0.95.",
            )
        if not 1 <= self.decisions <= MOST_DECISIONS:
            raise InvalidInput(
                "least_decisions", f"{self.decisions} cannot be asked for", hint=f"From 1 to {MOST_DECISIONS}, as 20."
            )


DEFAULT_NEED = Need(precision=0.95, decisions=20)
"""What a rule asks for that locked itself without an evidence asked for before."""
