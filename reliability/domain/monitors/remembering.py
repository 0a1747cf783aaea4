"""What of what a monitor says of one node is new, given what it said before?

Counters count by their rise, and from zero when they fell (the monitor or the machine began anew); the metric of a last
error counts when it changes; an event counts once; a condition counts when it begins. What cannot be told to be of now
does not count: the first look at a number, a rise over longer than OLD_S in which nobody looked, an older event.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability.domain.faults.words import Value
from reliability.domain.monitors.metrics import xid_code
from reliability.domain.monitors.words import Condition, Event, How, Item, Reading

OLD_S = 900.0
MOST_READINGS = 4096
MOST_CONDITIONS = 512
MOST_EVENTS = 10_000
_BIGGEST_COUNT = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finding that is new: `count` times the code at what `fields` tell."""

    source: str
    code: str
    evidence: str
    fields: Mapping[str, Value]
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Advance:
    """What is new, what is kept for the next time, and how much was no news: reason -> how often.

    `standing` are the codes of conditions that stand, `over` those that ended now.
    """

    found: tuple[Found, ...]
    kept: dict[str, Any]
    standing: tuple[str, ...]
    over: tuple[str, ...]
    no_news: Counter[str]


@dataclass
class _Memory:
    """What was said of one node by one kind of monitor."""

    readings: dict[str, list[float]]
    events: dict[str, float]
    conditions: dict[str, str]
    no_news: Counter[str] = field(default_factory=Counter)


def advance(kept: Mapping[str, Any], items: Iterable[Item], *, now: float) -> Advance:
    """Return what is new of the items of one node and one source; `kept` is that of the call before, {} at first."""
    memory = _Memory(
        readings=dict(kept.get("readings") or {}),
        events={name: at for name, at in (kept.get("events") or {}).items() if now - 2 * OLD_S <= at <= now + OLD_S},
        conditions=dict(kept.get("conditions") or {}),
    )
    before = set(memory.conditions.values())
    found: dict[tuple[str, object], Found] = {}
    for item in items:
        each = _news(memory, item, now)
        if each is None:
            continue
        place = (each.code, each.fields.get("device"))  # one thing seen in two ways is one thing
        known = found.get(place)
        if known is None or each.count > known.count:
            found[place] = each
    after = set(memory.conditions.values())
    return Advance(
        found=tuple(found.values()),
        kept={"readings": memory.readings, "events": memory.events, "conditions": memory.conditions},
        standing=tuple(sorted(after)),
        over=tuple(sorted(before - after)),
        no_news=memory.no_news,
    )


def _news(memory: _Memory, item: Item, now: float) -> Found | None:
    if isinstance(item, Reading):
        return _of_flag(memory, item) if item.how is How.FLAG else _of_number(memory, item, now)
    if isinstance(item, Event):
        return _of_event(memory, item, now)
    return _of_condition(memory, item) if isinstance(item, Condition) else None


def _of_number(memory: _Memory, item: Reading, now: float) -> Found | None:
    if item.key not in memory.readings and len(memory.readings) >= MOST_READINGS:
        memory.no_news["more numbers than are kept"] += 1
        return None
    known = memory.readings.get(item.key)
    memory.readings[item.key] = [item.value, now]
    if item.how is How.WINDOW:
        return _risen(memory, item, item.value - (known[0] if known else 0.0))
    if known is None or not 0 <= now - known[1] <= OLD_S:
        memory.no_news["first look" if known is None else "nobody looked for long"] += 1
        return None
    if item.how is How.LAST:
        return _changed(memory, item, known[0])
    rise = item.value - known[0] if item.value >= known[0] else item.value
    if item.how is How.SHARE:
        return _share(memory, item, rise, now - known[1])
    return _risen(memory, item, rise)


def _fields(item: Reading) -> dict[str, Value]:
    return {"device": item.device} if item.device else {}


def _on(item: Reading) -> str:
    return f"{item.metric} of {item.device}" if item.device else item.metric


def _risen(memory: _Memory, item: Reading, rise: float) -> Found | None:
    if rise < item.least:
        memory.no_news["no rise" if rise <= 0 else "too small a rise"] += 1
        return None
    evidence = f"{_on(item)} rose by {rise:g} to {item.value:g}"
    count = min(int(rise), _BIGGEST_COUNT)
    return Found(source=item.source, code=item.code, evidence=evidence, fields=_fields(item), count=max(1, count))


def _changed(memory: _Memory, item: Reading, before: float) -> Found | None:
    if item.value == before or not item.value:
        memory.no_news["the same last error" if item.value else "no error"] += 1
        return None
    evidence = f"{_on(item)} changed from {before:g} to {item.value:g}"
    return Found(source=item.source, code=xid_code(int(item.value)), evidence=evidence, fields=_fields(item))


def _share(memory: _Memory, item: Reading, rise_s: float, elapsed_s: float) -> Found | None:
    share = rise_s / elapsed_s if elapsed_s > 0 else 0.0
    if share < item.least:
        memory.no_news["too small a share"] += 1
        return None
    evidence = f"{_on(item)} rose by {rise_s:.3g} s within {elapsed_s:.3g} s"
    return Found(source=item.source, code=item.code, evidence=evidence, fields=_fields(item))


def _begun(memory: _Memory, name: str, code: str, *, stands: bool) -> bool:
    """Keep whether a condition stands; return whether it begins now."""
    if not stands:
        memory.conditions.pop(name, None)
        memory.no_news["no condition"] += 1
        return False
    if name in memory.conditions:
        memory.no_news["a condition that stood"] += 1
        return False
    if len(memory.conditions) >= MOST_CONDITIONS:
        memory.no_news["more conditions than are kept"] += 1
        return False
    memory.conditions[name] = code
    return True


def _of_flag(memory: _Memory, item: Reading) -> Found | None:
    if not _begun(memory, item.key, item.code, stands=item.value > 0):
        return None
    return Found(source=item.source, code=item.code, evidence=f"{_on(item)} is {item.value:g}", fields=_fields(item))


def _of_condition(memory: _Memory, item: Condition) -> Found | None:
    if not _begun(memory, item.name, item.code, stands=item.stands):
        return None
    return Found(source=item.source, code=item.code, evidence=item.evidence, fields=item.fields)


def _of_event(memory: _Memory, item: Event, now: float) -> Found | None:
    if not now - OLD_S <= item.at <= now + OLD_S:
        memory.no_news["an event of long ago" if item.at < now else "an event of the future"] += 1
        return None
    name = hashlib.blake2b(f"{item.at}|{item.name}".encode("utf-8", "replace"), digest_size=12).hexdigest()
    if name in memory.events:
        memory.no_news["the same event again"] += 1
        return None
    if len(memory.events) >= MOST_EVENTS:
        memory.no_news["more events than are kept"] += 1
        return None
    memory.events[name] = item.at
    return Found(source=item.source, code=item.code, evidence=item.evidence, fields=item.fields)
