"""Where do reports wait until the server has them? On disk, in order, through outages and restarts of the agent.

Each report has a sequence number within the incarnation that made it. An urgent report outlives a loss of power; of
the others those of the last moments may be lost with it, and are made again from what the node finds. The spool is
bounded: when it is full, the kinds that the server can do without go first, and every dropped report is counted.
Findings that are the same wait as one with a count.
"""

import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import sendable
from reliability.agent.sameness import Unsent, Waiting

URGENT = frozenset({"finding", "rank_exit", "container", "first_step", "order_result", "order_refused", "standstill"})
"""What is sent at once and forced to the disk before anything else goes on."""

LIMIT_BYTES = 200 * 2**20
_OVERHEAD_BYTES = 200
_SACRIFICE = ("memory_copy", "snapshot_problem", "snapshot_copy", "finding", "container", "first_step")
"""What is dropped when the spool is full, least important first. Results and exits are never dropped before these."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS reports (
  id INTEGER PRIMARY KEY AUTOINCREMENT, incarnation TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
  weight TEXT NOT NULL, at REAL NOT NULL, job TEXT NOT NULL, epoch INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS reports_weight ON reports (weight, id);
CREATE TABLE IF NOT EXISTS refused (
  id INTEGER PRIMARY KEY AUTOINCREMENT, incarnation TEXT, seq INTEGER, kind TEXT, job TEXT, epoch INTEGER, body TEXT,
  code TEXT, message TEXT);
CREATE TABLE IF NOT EXISTS dropped (kind TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS places (source TEXT PRIMARY KEY, place TEXT NOT NULL);
"""
_REFUSED_KEPT = 1000
_NO_TEXT = (TypeError, ValueError, RecursionError)

log = logging.getLogger("stepkeeper.agent")


@dataclass(frozen=True, kw_only=True)
class Report:
    """One report as it waits. `at` is the node's clock."""

    id: int
    incarnation: str
    seq: int
    kind: str
    at: float
    job: str
    epoch: int
    body: Mapping[str, Any]

    def item(self, current: str) -> dict[str, Any]:
        """Return the report as an item of a batch; one of an older incarnation names it."""
        item = {
            "seq": self.seq,
            "kind": self.kind,
            "at": self.at,
            "job": self.job,
            "epoch": self.epoch,
            "body": self.body,
        }
        return item if self.incarnation == current else {**item, "incarnation": self.incarnation}


class Spool:
    """The reports of this node that the server has not taken yet. Safe for several threads."""

    def __init__(self, path: Path, incarnation: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.incarnation = incarnation
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()
        self._level = ""
        self._unsent = Unsent()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(_SCHEMA)
        self._durable(False)
        row = self._db.execute("SELECT COALESCE(SUM(LENGTH(body)), 0), COUNT(*) FROM reports").fetchone()
        self._bytes = int(row[0]) + int(row[1]) * _OVERHEAD_BYTES
        last = self._db.execute("SELECT COALESCE(MAX(seq), 0) FROM reports WHERE incarnation = ?", (incarnation,))
        self._seq = int(last.fetchone()[0])

    def add(self, kind: str, body: Mapping[str, Any], *, at: float, job: str = "", epoch: int = 0) -> int:
        """Keep a report and return its sequence number; an urgent one is forced to the disk first.

        One that cannot be made text is dropped, and counted as such: nothing else waits for it.
        """
        try:
            text = sendable.text_of(body)
        except _NO_TEXT as error:
            return self._drop(kind, why=error)
        weight = "memory_copy" if kind == "snapshot_copy" and body.get("tier") == "memory" else kind
        with self._lock:
            known = self._unsent.counted(kind, body, at=at, job=job, epoch=epoch)
            if known is not None and self._recount(known):
                return known.seq
            self._seq += 1
            self._durable(kind in URGENT)
            added = self._db.execute(
                "INSERT INTO reports (incarnation, seq, kind, weight, at, job, epoch, body) VALUES (?,?,?,?,?,?,?,?)",
                (self.incarnation, self._seq, kind, weight, at, job, epoch, text),
            )
            if kind == "finding":
                self._unsent.wait(int(added.lastrowid or 0), self._seq, json.loads(text), at=at)
            self._bytes += len(text) + _OVERHEAD_BYTES
            if self._bytes > self._limit_bytes:
                self._make_room()
            return self._seq

    def _recount(self, known: Waiting) -> bool:
        """Write the count of a finding that waits; False when it is gone. Losing power costs a count at most."""
        if not self._db.in_transaction:
            self._durable(False)
        values = (sendable.text_of(known.body), known.id)
        return self._db.execute("UPDATE reports SET body = ? WHERE id = ?", values).rowcount == 1

    def keep_place(self, source: str, place: str) -> None:
        """Keep up to where a source was told, in one with what is added in the same `whole`."""
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (source, place))

    def place(self, source: str) -> str | None:
        """Return up to where a source was told."""
        with self._lock:
            row = self._db.execute("SELECT place FROM places WHERE source = ?", (source,)).fetchone()
        return None if row is None else str(row[0])

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Keep all that is added inside, or nothing of it; forced to the disk as a whole."""
        with self._lock:
            self._durable(True)
            self._db.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                self._unsent = Unsent()
                raise
            self._db.execute("COMMIT")

    def next(self, limit: int, *, findings: bool = True) -> list[Report]:
        """Return the oldest reports, all of one incarnation, in order. One that cannot be read is taken out.

        Without `findings` those are passed over.
        """
        while rows := self._oldest(limit, findings):
            same = [row for row in rows if row[1] == rows[0][1]]
            if found := [report for row in same if (report := self._read(row)) is not None]:
                return found
        return []

    def _oldest(self, limit: int, findings: bool) -> list[Sequence[Any]]:
        columns = "id, incarnation, seq, kind, at, job, epoch, body"
        where = "" if findings else "WHERE kind != 'finding'"
        with self._lock:
            rows = self._db.execute(f"SELECT {columns} FROM reports {where} ORDER BY id LIMIT ?", (limit,)).fetchall()  # noqa: S608
            self._unsent.sent({row[0] for row in rows})
            return rows

    def _read(self, row: Sequence[Any]) -> Report | None:
        """Return a report as it can be sent: an earlier life, or an older agent, may have kept it otherwise."""
        key, incarnation, seq, kind, at, job, epoch, text = row
        try:
            body = sendable.value_of(text)
        except _NO_TEXT as error:
            with self._lock:
                self._remove([key])
            self._drop(kind, why=error)
            return None
        return Report(id=key, incarnation=incarnation, seq=seq, kind=kind, at=at, job=job, epoch=epoch, body=body)

    def _drop(self, kind: str, *, why: Exception) -> int:
        log.error("report that cannot be sent dropped: kind=%s why=%s", kind, why)
        with self._lock:
            self._count_dropped(kind, 1)
            return self._seq

    def done(self, reports: Sequence[Report]) -> None:
        """Forget reports that the server has."""
        with self._lock:
            self._remove([report.id for report in reports])

    def refuse(self, report: Report, *, code: str, message: str) -> None:
        """Take a report out that the server will never accept, and keep it for people to look at."""
        with self._lock:
            self._db.execute(
                "INSERT INTO refused (incarnation, seq, kind, job, epoch, body, code, message) "
                "VALUES (?,?,?,?,?,?,?,?)",
                (
                    report.incarnation,
                    report.seq,
                    report.kind,
                    report.job,
                    report.epoch,
                    json.dumps(report.body),
                    code,
                    message,
                ),
            )
            self._db.execute("DELETE FROM refused WHERE id <= (SELECT MAX(id) FROM refused) - ?", (_REFUSED_KEPT,))
            self._remove([report.id])
        log.warning(
            "report refused by the server: job=%s epoch=%s kind=%s seq=%s code=%s reason=%s",
            *(report.job, report.epoch, report.kind, report.seq, code, message),
        )

    def refused(self) -> list[tuple[str, int, str, str]]:
        """Return (incarnation, seq, kind, code) of the kept refused reports, oldest first."""
        with self._lock:
            return self._db.execute("SELECT incarnation, seq, kind, code FROM refused ORDER BY id").fetchall()

    def count(self) -> int:
        """Return how many reports wait."""
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM reports").fetchone()[0])

    def dropped(self) -> dict[str, int]:
        """Return how many reports were dropped by kind and not told yet."""
        with self._lock:
            return dict(self._db.execute("SELECT kind, count FROM dropped WHERE count > 0").fetchall())

    def forget_dropped(self, kind: str, count: int) -> None:
        """Take note that so many dropped reports were told; more may have been dropped meanwhile."""
        with self._lock:
            self._db.execute("UPDATE dropped SET count = count - ? WHERE kind = ?", (count, kind))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _durable(self, wanted: bool) -> None:
        """Choose whether the next writes are forced to the disk, at the price of a sync each."""
        level = "FULL" if wanted else "NORMAL"
        if level != self._level:
            self._db.execute(f"PRAGMA synchronous={level}")
            self._level = level

    def _make_room(self) -> None:
        aim = self._limit_bytes * 9 // 10
        for weight in (*_SACRIFICE, None):
            while self._bytes > aim:
                where, values = ("WHERE weight = ?", (weight,)) if weight else ("", ())
                rows = self._db.execute(f"SELECT id FROM reports {where} ORDER BY id LIMIT 500", values).fetchall()  # noqa: S608
                if not rows:
                    break
                self._remove([row[0] for row in rows])
                self._count_dropped(weight or "other", len(rows))
                log.error("spool full, reports dropped: kind=%s count=%s", weight or "other", len(rows))

    def _count_dropped(self, kind: str, count: int) -> None:
        self._db.execute(
            "INSERT INTO dropped VALUES (?, ?) ON CONFLICT (kind) DO UPDATE SET count = count + excluded.count",
            (kind, count),
        )

    def _remove(self, ids: Sequence[int]) -> None:
        self._db.execute("SAVEPOINT removal")
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            marks = ",".join("?" * len(part))
            freed = self._db.execute(
                f"SELECT COALESCE(SUM(LENGTH(body)), 0), COUNT(*) FROM reports WHERE id IN ({marks})",  # noqa: S608
                part,
            ).fetchone()
            self._db.execute(f"DELETE FROM reports WHERE id IN ({marks})", part)  # noqa: S608
            self._bytes -= int(freed[0]) + int(freed[1]) * _OVERHEAD_BYTES
        self._db.execute("RELEASE removal")
