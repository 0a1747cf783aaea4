"""When does a monitor say that something happened?"""

import calendar
import re

from reliability.errors import InvalidInput

_HINT = "As in 2026-05-01T10:00:00Z, or seconds since 1970."
_WRITTEN = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(\.\d{1,9})?(?:[Zz]|([+-])(\d{2}):?(\d{2}))?", re.ASCII
)


def instant(value: object, path: str) -> float:
    """Read a time as RFC 3339 or as a number of seconds; without a zone it is UTC. Returns seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and -1e11 < value < 1e11:
        return float(value)
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        shown = f"{value[:40]!r} is no time" if isinstance(value, str) else "is no time"
        raise InvalidInput(path, shown, hint=_HINT)
    year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
    sure = 1 <= month <= 12 and 1 <= day <= _days(year, month) and hour < 24 and minute < 60 and second <= 60
    if not sure:
        raise InvalidInput(path, f"{found[0]!r} is no time", hint=_HINT)
    offset_s = 60 * (60 * int(found[9] or 0) + int(found[10] or 0)) * (-1 if found[8] == "-" else 1)
    return calendar.timegm((year, month, day, hour, minute, second)) - offset_s + float(found[7] or 0)


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1] if year else 0
