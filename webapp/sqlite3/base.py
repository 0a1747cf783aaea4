"""How does a writer wait while another one writes? By asking again every millisecond or two.

SQLite itself asks ever less often, in the end ten times a second. Beside a controller that writes small things all the
time, whoever waits long is then passed over by all who just came: what a node reported waited for seconds.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.db.backends.sqlite3 import base

Result = TypeVar("Result")
LIMIT_S = 20.0
BUSY = 5
"""The number of SQLITE_BUSY; what says more of the reason has it as its lowest byte."""


class PatientCursor(base.SQLiteCursorWrapper):
    """A cursor whose statements wait for the writer; inside a transaction there is none to wait for."""

    def execute(self, query: str, params: Any = None) -> Any:
        """Execute a statement. Raises OperationalError when it is locked out for LIMIT_S."""
        run = super().execute
        if self.connection.in_transaction:
            return run(query, params)
        return patiently(lambda: run(query, params))


def patiently(work: Callable[[], Result], *, limit_s: float = LIMIT_S) -> Result:
    """Return what the work returns once no other connection writes. Raises OperationalError after `limit_s`."""
    until = time.monotonic() + limit_s
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != BUSY or time.monotonic() >= until:
                raise
        time.sleep(random.uniform(0.001, 0.002))  # noqa: S311 (not two in step)


class DatabaseWrapper(base.DatabaseWrapper):
    """Hands out such cursors."""

    def create_cursor(self, name: str | None = None) -> PatientCursor:
        """Return a cursor."""
        cursor: PatientCursor = self.connection.cursor(factory=PatientCursor)
        return cursor
