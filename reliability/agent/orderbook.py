"""What has this node been ordered before? Kept on disk, so that neither a restart nor a loss of power forgets it.

Nonces are kept until the order they came with has expired; results so that an order asked again is answered and not
done again; the highest epoch of each job so that an older attempt is never obeyed.
"""

import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nonces (nonce TEXT PRIMARY KEY, expires_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, done_at REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (job TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
"""
_RESULTS_KEPT_S = 7 * 86400.0


class OrderBook:
    """Nonces, results and epochs. Safe for several threads. Times are server time."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def seen(self, nonce: str) -> bool:
        """Return whether an order with this nonce came before."""
        with self._lock:
            return self._db.execute("SELECT 1 FROM nonces WHERE nonce = ?", (nonce,)).fetchone() is not None

    def remember(self, nonce: str, *, expires_at: float, now: float) -> bool:
        """Keep a nonce; return False when it was there already. Forgets what has expired."""
        with self._lock:
            self._db.execute("DELETE FROM nonces WHERE expires_at < ?", (now - 60.0,))
            cursor = self._db.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?)", (nonce, expires_at))
            return cursor.rowcount == 1

    def result(self, order_id: str) -> dict[str, Any] | None:
        """Return the kept result of an order, or None when it was not done."""
        with self._lock:
            row = self._db.execute("SELECT body FROM results WHERE id = ?", (order_id,)).fetchone()
        return json.loads(row[0]) if row else None

    def keep(self, order_id: str, body: Mapping[str, Any], *, now: float) -> None:
        """Keep the result of an order."""
        with self._lock:
            self._db.execute("DELETE FROM results WHERE done_at < ?", (now - _RESULTS_KEPT_S,))
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", (order_id, now, json.dumps(body)))

    def epoch(self, job: str) -> int:
        """Return the highest epoch of a job that this node has seen; 0 when none."""
        with self._lock:
            row = self._db.execute("SELECT epoch FROM epochs WHERE job = ?", (job,)).fetchone()
        return int(row[0]) if row else 0

    def raise_epoch(self, job: str, epoch: int) -> bool:
        """Keep the epoch when it is the highest; return whether it was raised."""
        with self._lock:
            cursor = self._db.execute(
                "INSERT INTO epochs VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET epoch = excluded.epoch "
                "WHERE excluded.epoch > epochs.epoch",
                (job, epoch),
            )
            return cursor.rowcount == 1

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
