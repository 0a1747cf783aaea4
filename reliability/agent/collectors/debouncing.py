"""When is a finding told? The first of its kind at once, the same again as a count, so that a flood is never passed on.

The same is: same code at the same place (device, part of a GPU, link, server ...). While it goes on, its count is told
after 2 s and then less and less often, up to once a minute. Whatever is told, everything is told that was found before
it: so the order stays, and one place in the source says up to where all is told. Memory is bounded: when too many
different things wait, those of one code are counted together, and then all of them.
"""

from dataclasses import dataclass, replace

from reliability.agent.collectors.checking import Found
from reliability.domain.faults.places import place_of

FIRST_S, LONGEST_S = 2.0, 60.0
MOST_AT_ONCE = 50
"""So many new things are told at once within FIRST_S; what comes on top waits for its end."""
MOST_PLACES = 500
MOST_CODES = 1000
FLOOD = "finding-flood"
WHOM = ("pid", "cpu")
"""Beside the place, while it waits to be told: whom it hit. Told soon one after the other, they count as one."""

Key = tuple[object, ...]


@dataclass
class _Told:
    at: float
    window_s: float

    def next_window_s(self, now: float) -> float:
        return FIRST_S if now - self.at > 2 * self.window_s else min(2 * self.window_s, LONGEST_S)


def key_of(found: Found) -> Key:
    """Return what makes two findings the same."""
    return (found.code, found.rank, *place_of(found.fields), *(found.fields.get(name) for name in WHOM))


class Debounce:
    """What waits to be told, in the order of the first of each."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Found] = {}
        self._due: float | None = None
        self._told: dict[Key, _Told] = {}
        self._fresh_from = 0.0
        self._fresh = 0

    def take(self, found: Found, now: float) -> None:
        """Take a finding in."""
        key = self._key(found)
        known = self._waiting.get(key)
        if known is not None:
            self._waiting[key] = replace(known, count=known.count + found.count)
            return
        self._waiting[key] = _merged(found) if key == (FLOOD,) else found
        due = self._when(key, now)
        self._due = due if self._due is None else min(self._due, due)

    def due_at(self) -> float | None:
        """Return when something has to be told, None when nothing waits."""
        return self._due

    def empty(self) -> bool:
        """Return whether all that was found is told."""
        return not self._waiting

    def tell(self, now: float) -> list[Found]:
        """Return all that waits, once the first of it is due; [] before."""
        if self._due is None or now < self._due:
            return []
        told, self._waiting, self._due = self._waiting, {}, None
        for key in told:
            before = self._told.get(key)
            self._told[key] = _Told(now, FIRST_S if before is None else before.next_window_s(now))
        self._forget(now)
        return list(told.values())

    def _key(self, found: Found) -> Key:
        key = key_of(found)
        if key in self._waiting or len(self._waiting) < MOST_PLACES:
            return key
        by_code: Key = (found.code,)
        return by_code if by_code in self._waiting or len(self._waiting) < MOST_CODES else (FLOOD,)

    def _when(self, key: Key, now: float) -> float:
        told = self._told.get(key)
        if told is not None and now < told.at + told.window_s:
            return told.at + told.window_s
        if now - self._fresh_from > FIRST_S:
            self._fresh_from, self._fresh = now, 0
        self._fresh += 1
        return now if self._fresh <= MOST_AT_ONCE else self._fresh_from + FIRST_S

    def _forget(self, now: float) -> None:
        old = [key for key, told in self._told.items() if now - told.at > 2 * told.window_s]
        for key in old:
            del self._told[key]


def _merged(found: Found) -> Found:
    evidence = f"Too many different findings at once; counted together, the first is {found.code}: {found.evidence}"
    return Found(code=FLOOD, evidence=evidence, count=found.count)
