"""When does a monitor say that something happened?"""

from datetime import UTC, datetime

from reliability.errors import InvalidInput

_HINT = "As in 2026-05-01T10:00:00Z, or seconds since 1970."


def instant(value: object, path: str) -> float:
    """Read a time as RFC 3339 or as a number of seconds; without a zone it is UTC. Returns seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and -1e11 < value < 1e11:
        return float(value)
    if not isinstance(value, str):
        raise InvalidInput(path, "is no time", hint=_HINT)
    try:
        told = datetime.fromisoformat(value[:64])
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(path, f"{value[:40]!r} is no time", hint=_HINT) from error
