"""The words of faults: classes, actions, severities, and one row of the fault-code table.

Class says where the cause lies, action says what helps, and they differ on purpose: a contained GPU memory error is
hardware and yet only the program needs a restart; a hung system processor of the GPU is software and yet only another
node helps.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


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


STRENGTH: Mapping[Action, int] = MappingProxyType({action: place for place, action in enumerate(Action)})
"""Actions by strength: a judgement only ever moves up."""


class Severity(StrEnum):
    """How bad a finding is by itself, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


class Origin(StrEnum):
    """Who wrote a line. Only the kernel's own log can speak for the kernel: a program can print whatever it likes."""

    KERNEL = "kernel"
    OUTPUT = "output"
    TOOL = "tool"


class Weight(StrEnum):
    """What a finding is worth beside others.

    plain: decides by itself. follow_up: a consequence of something else, never decides alone. unexplained: an end
    without a known cause, for which the job's policy stands in. witness: explains an end of the job on its node, and is
    only observed while nothing ended.
    """

    PLAIN = "plain"
    FOLLOW_UP = "follow_up"
    UNEXPLAINED = "unexplained"
    WITNESS = "witness"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """What it means when a code comes back at the same place: `times` within `window_s` seconds.

    `place` is what must be the same: 'unit' (a part of a GPU such as GPC and TPC), 'device', or 'node'. `moves_once`:
    it is only a suspicion: where a node of the job was replaced for the like within the window, a person is asked.
    """

    times: int
    window_s: float
    place: str
    fault_class: FaultClass
    action: Action
    moves_once: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """How a line of a log looks that stands for a code.

    `literals`: one of them is in every such line; they are searched for first. Named groups of `pattern` are the fields
    that the line carries. A kernel's pattern must match from the start of the message.
    """

    pattern: str
    literals: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultCode:
    """One row of the fault-code table.

    `debounce_s`: the condition must stand that long, uncleared, before its action is taken. `clears`: the code whose
    condition this one ends. `standing_action`: what is done when training stops while the condition stands.
    """

    code: str
    source: str
    meaning: str
    fault_class: FaultClass
    action: Action
    severity: Severity
    advice: str
    origin: Origin = Origin.TOOL
    weight: Weight = Weight.PLAIN
    debounce_s: float = 0.0
    repeat: Repeat | None = None
    clears: str = ""
    standing_action: Action | None = None
    lines: tuple[Line, ...] = ()
    examples: tuple[str, ...] = ()
    enabled: bool = True

    @property
    def follow_up(self) -> bool:
        """Whether it is a consequence of something else and never decides alone."""
        return self.weight is Weight.FOLLOW_UP

    @property
    def unexplained(self) -> bool:
        """Whether it is an end without a known cause, for which the job's policy stands in."""
        return self.weight is Weight.UNEXPLAINED

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that its lines can carry."""
        named = (name for line in self.lines for name in re.findall(r"\(\?P<(\w+)>", line.pattern))
        return tuple(dict.fromkeys(name.rstrip("_") for name in named))


Value = str | int


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What one line alone tells: a code, and the fields that the line carries."""

    code: str
    fields: Mapping[str, Value] = field(default_factory=dict)
