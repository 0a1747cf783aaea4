"""What is a check of this node, and what does one run of it come to?

A check is a function that looks at the node and returns an Outcome. It runs in a process of its own with a hard limit
of time (`check_host.py`), so it may block or crash and takes nothing with it. It keeps nothing in memory: what it needs
to know of its last run (a counter, to tell the difference) it returns as `state` and gets back the next time, also
after a restart of the agent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Option = str | float | bool
"""A value that an operator may set for a check; the default's type is the type that is asked for."""
STALE_PERIODS = 3.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """One observation: a code of the fault table, the line or sentence that shows it, and what it carries.

    `fields` may name a place (device, module, interface ...): the same code at the same place is counted, not repeated.
    """

    code: str
    evidence: str
    count: int = 1
    fields: Mapping[str, str | int] = field(default_factory=dict)
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one run gets.

    options: the check's own, with the operator's changes. facts: what the agent knows now (folders of the tiers,
    containers, the clock). state: what the last run returned, {} at first. since_s: seconds since that run began, None
    at first.
    """

    options: Mapping[str, Option]
    facts: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    since_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run comes to.

    ok: True, False, or None when it could not be told. reason: a sentence for people, needed unless ok is True.
    measured: numbers and words that are shown. All of it must be possible in JSON.
    """

    ok: bool | None
    reason: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Found] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. `period_s` from start to start; `limit_s` after which it counts as hanging and is killed.

    options: name -> default of what an operator may set, in the section of the check in the checks file.
    """

    name: str
    run: Callable[[Inputs], Outcome]
    period_s: float = 10.0
    limit_s: float = 5.0
    options: Mapping[str, Option] = field(default_factory=dict)
    enabled: bool = True

    @property
    def stale_s(self) -> float:
        """After which age its last result says nothing any more."""
        return STALE_PERIODS * self.period_s + self.limit_s
