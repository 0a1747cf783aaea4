"""In how many ways might a regular expression try to match the name of a file?

Python's `re` has no limit of time. A bound is counted from the parsed pattern instead: a repeat may stop after each of
so many rounds, an alternative take each branch, and what follows one another multiplies. Nested repeats multiply
without end, so they are refused.
"""

import importlib
from collections.abc import Iterable
from typing import Any

LONGEST_NAME = 255
_ROUNDS = 160
"""What one repeat counts at most: several share the length of the name, and three have C(257, 3) < 160^3 ways."""
MOST_TRIES = _ROUNDS**3 * 4
"""About a second of matching at worst, for a name made for it."""
_parser = importlib.import_module("re._parser")  # as `re` itself reads it; nothing public shows it
_PLAIN = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY", "RANGE", "GROUPREF"}
_GROUPS = {"SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_ENDLESS = MOST_TRIES + 1


def tries(pattern: str) -> int:
    """Return a bound of the ways to match a name of the longest length; more than MOST_TRIES when it is none.

    Raises re.error when it is no pattern.
    """
    return _sequence(_parser.parse(pattern))


def _sequence(items: Iterable[tuple[Any, Any]]) -> int:
    ways = 1
    for kind, about in items:
        ways = min(ways * _one(str(kind), about), _ENDLESS)
    return ways


def _one(kind: str, about: Any) -> int:
    if kind in _REPEATS:
        return _repeat(*about)
    if kind == "BRANCH":
        return sum(map(_sequence, about[1]))
    if kind in _GROUPS:
        return _sequence(about if kind == "ATOMIC_GROUP" else about[-1])
    return 1 if kind in _PLAIN else _ENDLESS


def _repeat(least: int, most: int, items: Any) -> int:
    """Rounds of a body that has one way and is never empty: their number is all there is to try."""
    ways, most = _sequence(items), min(int(most), LONGEST_NAME)
    if most <= 1:
        return ways + (least == 0)
    if ways > 1 or items.getwidth()[0] == 0:
        return _ENDLESS
    return min(max(most - least, 0) + 1, _ROUNDS)
