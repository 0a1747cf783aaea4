"""What can a monitor say of a node: a number it read, an event, or a condition that stands or is over."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reliability.domain.faults.words import Value

DCGM, GPUD, NPD = "dcgm", "gpud", "node-problem-detector"


class How(StrEnum):
    """What of a number is news.

    last: it names the last error for ever, so that only a change counts. window: errors of the last minutes, a rise
    counts. counter: it only rises, and begins anew when the monitor does. flag: a condition that stands while it is not
    zero. share: seconds that only rise, news when their share of the time is large.
    """

    LAST = "last"
    WINDOW = "window"
    COUNTER = "counter"
    FLAG = "flag"
    SHARE = "share"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One statement. `where` is its place in what was sent, `node` and `uuid` name the node as the monitor does."""

    where: str
    source: str
    node: str = ""
    uuid: str = ""


@dataclass(frozen=True, kw_only=True)
class Reading(Item):
    """A number. `key` tells it from the others of its node; `least` is how much of a rise or share (0-1) is news."""

    key: str
    how: How
    code: str
    metric: str
    value: float
    device: str = ""
    least: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Event(Item):
    """Something that happened once. `at` is the monitor's clock, seconds since 1970; `name` tells it from others."""

    name: str
    at: float
    code: str
    evidence: str
    fields: Mapping[str, Value] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class Condition(Item):
    """Something that stands, or is over."""

    name: str
    stands: bool
    code: str
    evidence: str
    fields: Mapping[str, Value] = field(default_factory=dict, hash=False)


@dataclass
class Said:
    """All that was said, and what of it meant nothing here: reason -> how often."""

    items: list[Item] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
