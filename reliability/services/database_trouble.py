"""Is an error one of the database that is busy or away, so that the same may succeed in a moment?

Errors of its content or its schema, a full disk, and whatever else does not pass by itself, are none.
Codes: https://www.sqlite.org/rescode.html and https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

import enum
import sqlite3

from django.db import InterfaceError, OperationalError

_BUSY_STATES = frozenset({"55P03", "40P01", "40001"})
"""A lock is not to be had, a deadlock, transactions that cannot stand side by side."""
_AWAY_STATES = ("08", "57P", "53300")
"""The connection failed; the server stops, fell, starts; it has no connection left."""
_SQLITE_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Trouble(enum.StrEnum):
    """What the database has. BUSY: the statement was not carried out. AWAY: whether it was is not known."""

    BUSY = "busy"
    AWAY = "away"


def trouble(error: BaseException | None) -> Trouble | None:
    """Return what the database has, None when the error is another."""
    if isinstance(error, InterfaceError):
        return Trouble.AWAY
    if not isinstance(error, OperationalError):
        return None
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    state = getattr(cause, "sqlstate", None)
    if state in _BUSY_STATES:
        return Trouble.BUSY
    # Errors that the driver finds itself, as a connection that is refused or was closed, have no state.
    away = state is None or state.startswith(_AWAY_STATES)
    return Trouble.AWAY if away else None


def _of_sqlite(cause: sqlite3.Error) -> Trouble | None:
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in _SQLITE_LOCKED:
        return Trouble.BUSY
    return Trouble.AWAY if code == sqlite3.SQLITE_CANTOPEN else None
