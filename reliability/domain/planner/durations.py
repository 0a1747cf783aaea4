"""How long is `5m`, and how do people say 300 seconds?"""

import math
import re

from reliability.errors import InvalidInput

LEAST_S = 1e-9
LONGEST_S = 1e12
MOST_LETTERS = 60
EXAMPLES = "Write a time as 30, 30s, 5m, 7.9h or 12d."
_UNITS = {
    "ms": 1e-3,
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)\s*", re.ASCII)
_SIGNED_NUMBER = re.compile(rf"[+-]?{_NUMBER}", re.ASCII)


def shown(value: object) -> str:
    """Return a value as it may stand in a message: short, printable, whatever it is."""
    if isinstance(value, str):
        text = "".join(letter if letter.isprintable() else "\ufffd" for letter in value[: MOST_LETTERS + 1])
        return f"'{text[:MOST_LETTERS]}...'" if len(value) > MOST_LETTERS else f"'{text}'"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a number of that size"
    if isinstance(value, float):
        return f"{value:.12g}"
    return {"dict": "an object", "list": "a list", "tuple": "a list"}.get(type(value).__name__, "that")


def number(value: object, field: str, hint: str) -> float:
    """Return a finite number that is given as one or as text. Raises InvalidInput."""
    given = value
    if isinstance(value, str):
        text = value.strip()
        lowered = text.lower().lstrip("+-")
        if lowered in {"nan", "inf", "infinity"}:
            raise InvalidInput(field, f"{shown(text)} is not a finite number", hint=hint)
        if len(text) > MOST_LETTERS or not _SIGNED_NUMBER.fullmatch(text):
            raise InvalidInput(field, f"{shown(text)} is not a number", hint=_with_point(text) or hint)
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"{shown(given)} is not a number", hint=hint)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(field, f"{shown(given)} is not a finite number", hint=hint)
    if abs(value) > 1e300:
        raise InvalidInput(field, f"{shown(given)} is too large", hint=hint)
    return float(value) + 0.0  # -0.0 is 0.0


def _with_point(text: str) -> str:
    better = text.replace(",", ".", 1)
    known = "," in text and len(text) <= MOST_LETTERS
    return f"Write {better}." if known and _parts(better.lstrip("+-")) else ""


def _parts(text: str) -> list[tuple[str, str]]:
    """Return the (number, unit) pairs that make up a text, none when something else stands in it."""
    found, at = [], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2].lower() not in _UNITS:
            return []
        found.append((part[1], part[2].lower()))
        at = part.end()
    alone = len(found) == 1
    return found if alone or all(unit for _, unit in found) else []


def seconds(value: object, field: str, *, hint: str = EXAMPLES) -> float:
    """Return a duration in seconds: a number of them, or text such as `30`, `30 s`, `5 min`, `7.9h`, `1h30m`.

    Not negative, not between 0 and a nanosecond, at most 1e12. Raises InvalidInput that says what would be right.
    """
    found = _written(value, field, hint) if isinstance(value, str) else number(value, field, hint)
    if found < 0:
        raise InvalidInput(field, f"{shown(value)} is negative", hint=f"Give 0 or more. {hint}")
    if 0 < found < LEAST_S:
        raise InvalidInput(field, f"{shown(value)} is shorter than a nanosecond", hint=hint)
    if found > LONGEST_S:
        raise InvalidInput(field, f"{shown(value)} is longer than 30 000 years", hint=hint)
    return found


def _written(text: str, field: str, hint: str) -> float:
    text = text.strip()
    negative = text.startswith("-")
    parts = _parts(text.lstrip("+-").strip()) if len(text) <= MOST_LETTERS else []
    if not parts:
        words = text.lower().lstrip("+-")
        what = "a finite time" if words in {"nan", "inf", "infinity"} else "a duration"
        raise InvalidInput(field, f"{shown(text)} is not {what}", hint=_with_point(text) or hint)
    total = math.fsum(min(float(count), 1e300) * _UNITS[unit] for count, unit in parts)
    if math.isinf(float(parts[0][0])):
        raise InvalidInput(field, f"{shown(text)} is not a finite time", hint=hint)
    return -total if negative else total


def spoken(duration_s: float) -> str:
    """Write a duration as people say it: below a minute with three digits that count, else in two units at most."""
    if duration_s < 0.1:
        return "0 s" if duration_s == 0 else f"{duration_s * 1000:.3g} ms"
    if duration_s < 59.95:
        return f"{duration_s:.3g} s"
    if duration_s < 3599.5:
        return _two(round(duration_s), 60, "min", "s")
    if duration_s < 86_370:
        return _two(round(duration_s / 60), 60, "h", "min")
    if duration_s < 1e9:
        return _two(round(duration_s / 3600), 24, "d", "h")
    return f"{duration_s / (365.25 * 86_400):,.0f} years".replace(",", " ")


def _two(count: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(count, size)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
