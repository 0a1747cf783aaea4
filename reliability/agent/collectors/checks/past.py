"""What did earlier looks of a check see? Counters are read as what they rose by, conditions by how long they stand.

What is kept is a JSON object that the agent keeps between two looks, also over its own restarts. Anything else found in
its place counts as no earlier look at all. Instants are seconds of the machine's clock since its start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

MOST_KEPT = 8192
"""So many counters, windows and so on are kept of a check."""
MOST_IN_WINDOW = 64
_SORTS = ("counters", "lasting", "falls", "windows", "highest", "higher", "since", "told", "notes")
_OF_ONE_START = ("counters", "falls", "windows", "since", "told", "notes")
_OF_ONE_LOOK = ("higher", "since", "told", "notes")


@dataclass(frozen=True, slots=True)
class Told:
    """A condition that stood and was told: its code ('' when it was not told), where, and what told the place."""

    code: str
    place: str
    fields: Mapping[str, str | int]


class Past:
    """What was kept, and what is to be kept after this look.

    `first`: nothing was kept. `rebooted`: the machine was started since the look before.
    """

    def __init__(self, kept: object, *, boot: str, at: float) -> None:
        before: Mapping[str, Any] = kept if isinstance(kept, dict) else {}
        self.at = at
        self._boot = boot
        self.first = not isinstance(before.get("boot"), str)
        self.rebooted = not self.first and before.get("boot") != boot
        self._before = {sort: _mapping(before.get(sort)) for sort in _SORTS}
        if self.rebooted:
            for sort in _OF_ONE_START:
                self._before[sort] = {}
        self._now: dict[str, dict[str, Any]] = {sort: {} for sort in _SORTS}

    def kept(self) -> dict[str, Any]:
        """Return what is to be kept. What this look did not come across is kept as it was, while there is room."""
        result: dict[str, Any] = {"boot": self._boot, "at": self.at}
        for sort in _SORTS:
            merged = dict(self._now[sort])
            if sort not in _OF_ONE_LOOK:
                for key, value in self._before[sort].items():
                    if len(merged) >= MOST_KEPT:
                        break
                    merged.setdefault(key, value)
            result[sort] = merged
        return result

    def rise(self, key: str, value: int | None, *, from_zero: bool = False, lasting: bool = False) -> int:
        """Return by how much a counter rose since the look before.

        The first look rises by nothing. After a start of the machine the counter began anew: with `from_zero` all it
        shows has happened since, without it is what the start itself brought; `lasting` counters go on over it. One
        that is lower than before counts as begun anew when the next look agrees, and until then as misread.
        """
        if value is None or value < 0:
            return 0
        sort = "lasting" if lasting else "counters"
        before = self._before[sort].get(key)
        if not _whole(before):
            self._now[sort][key] = value
            return value if self.rebooted and from_zero and not lasting else 0
        fallen = self._before["falls"].pop(key, None)
        if value >= before:
            self._now[sort][key] = value
            return int(value - before)
        if _whole(fallen) and value >= fallen:
            self._now[sort][key] = value
            return value
        self._now[sort][key] = before
        self._now["falls"][key] = value
        return 0

    def within(self, key: str, amount: int, window_s: float) -> int:
        """Return the sum of the amounts of the last `window_s` seconds, with the one of this look."""
        kept = [pair for pair in _list(self._before["windows"].get(key)) if _pair(pair)]
        kept = [pair for pair in kept if 0 <= self.at - pair[0] <= window_s]
        if amount:
            kept.append([self.at, amount])
        while len(kept) > MOST_IN_WINDOW:  # the two oldest become one, at the later instant: nothing is forgotten
            kept[:2] = [[kept[1][0], kept[0][1] + kept[1][1]]]
        self._now["windows"][key] = kept
        return sum(pair[1] for pair in kept)

    def highest(self, key: str, value: float | None) -> float | None:
        """Return the highest value seen so far, over starts of the machine too; one look alone is not believed."""
        before = self._before["highest"].get(key)
        known = before if _any_number(before) else None
        if value is not None and (known is None or value > known):
            candidate = self._before["higher"].get(key)
            if _any_number(candidate):
                known = min(candidate, value) if known is None else max(known, min(candidate, value))
            self._now["higher"][key] = value
        if known is not None:
            self._now["highest"][key] = known
        return known

    def forget(self, key: str) -> None:
        """Forget the highest value seen."""
        self._before["highest"].pop(key, None)
        self._now["highest"].pop(key, None)

    def known(self) -> list[str]:
        """Return the keys of which a highest value is known."""
        return sorted(self._before["highest"])

    def held_s(self, key: str, stands: bool) -> float:
        """Return for how many seconds something has stood in every look; 0 in the look that sees it first."""
        if not stands:
            return 0.0
        since = self._before["since"].get(key)
        began = since if _any_number(since) and since <= self.at else self.at
        self._now["since"][key] = began
        return float(self.at - began)

    def notes(self, name: str) -> dict[str, Any]:
        """Return what the look before noted under a name."""
        return _mapping(self._before["notes"].get(name))

    def note(self, name: str, notes: Mapping[str, Any]) -> None:
        """Note something for the next look."""
        self._now["notes"][name] = dict(notes)

    def told(self) -> dict[str, Told]:
        """Return what stood at the look before, by its key."""
        kept = {key: _told(value) for key, value in self._before["told"].items()}
        return {key: told for key, told in kept.items() if told is not None}

    def tell(self, key: str, told: Told) -> None:
        """Note that something stands."""
        self._now["told"][key] = {"code": told.code, "place": told.place, "fields": dict(told.fields)}


def _told(value: object) -> Told | None:
    if not isinstance(value, dict) or not isinstance(value.get("code"), str):
        return None
    fields = _mapping(value.get("fields"))
    return Told(value["code"], str(value.get("place", "")), {key: each for key, each in fields.items() if _plain(each)})


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _any_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _any_number(value[0]) and _whole(value[1])


def _plain(value: object) -> bool:
    return isinstance(value, str) or _whole(value)
