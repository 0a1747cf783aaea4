"""Writers of the embedded database wait for each other, and nobody waits long because others came later."""

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from webapp.sqlite3.base import PatientCursor, patiently


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection as Django opens it."""
    connection = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
    for command in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=2"):
        connection.execute(f"PRAGMA {command}")
    return connection


def test_a_writer_gets_its_turn_beside_one_that_writes_all_the_time(tmp_path: Path) -> None:
    busy, late = opened(tmp_path / "db"), opened(tmp_path / "db")
    busy.execute("CREATE TABLE t (n)")
    ended, written = threading.Event(), [0]

    def write_on() -> None:
        cursor = busy.cursor(factory=PatientCursor)
        while not ended.is_set():
            written[0] += 1
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("INSERT INTO t VALUES (1)")
            time.sleep(0.02)
            cursor.execute("COMMIT")
            time.sleep(0.002)

    other = threading.Thread(target=write_on)
    other.start()
    try:
        passed = []
        for _ in range(20):
            before = written[0]
            late.cursor(factory=PatientCursor).execute("INSERT INTO t VALUES (2)")
            passed.append(written[0] - before)
    finally:
        ended.set()
        other.join(10)
    assert late.execute("SELECT count(*) FROM t WHERE n = 2").fetchone() == (20,)
    assert sorted(passed)[10] <= 6, passed


def test_a_writer_that_is_locked_out_for_too_long_is_told_so(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "db"), opened(tmp_path / "db")
    first.execute("CREATE TABLE t (n)")
    first.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        patiently(lambda: second.execute("INSERT INTO t VALUES (1)"), limit_s=0.05)
    first.execute("ROLLBACK")


def test_what_is_wrong_with_a_statement_is_told_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        opened(tmp_path / "db").cursor(factory=PatientCursor).execute("INSERT INTO t VALUES (1)")
    assert time.monotonic() - began < 5
