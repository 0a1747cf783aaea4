"""How does the server learn what happens on this node?

One thread sends everything: a heartbeat each period and the spooled reports, in order, over one kept connection. An
urgent report wakes it at once. Nothing that runs on the node can hold it up: it reads only what others have put down.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.identity import Identity
from reliability.agent.server import Answer, Server, ServerAway, ServerRefused
from reliability.agent.spool import URGENT, Report, Spool
from reliability.domain.retrying import FIRST_WAIT_S, LONGEST_WAIT_S
from reliability.errors import ReliabilityError, StaleEpoch

MOST_REPORTS = 200
LATER_S = 1.0
"""So long the server is spared findings, when it said that too many of this node wait to be read."""
_MALFORMED = {400, 413, 422}
_CONFLICT = 409

log = logging.getLogger("stepkeeper.agent")


class Reporter:
    """Keeps reports and heartbeats flowing to the server.

    `heartbeat` returns the heartbeat's jobs and disks; `on_answer` gets every answer; `on_stale` is called when the
    server says that this incarnation was replaced.
    """

    def __init__(
        self,
        server: Server,
        spool: Spool,
        identity: Callable[[], Identity],
        *,
        heartbeat: Callable[[], Mapping[str, Any]],
        on_answer: Callable[[Mapping[str, Any], bool], None],
        on_stale: Callable[[ServerRefused], None],
    ) -> None:
        self._server = server
        self._spool = spool
        self._identity = identity
        self._heartbeat = heartbeat
        self._on_answer = on_answer
        self._on_stale = on_stale
        self._wake = threading.Condition()
        self._urgent = False
        self._stopping = False
        self._beats_from = 0.0
        self._findings_from = 0.0
        self._silent_until = 0.0
        self._next_beat = 0.0
        self._most = MOST_REPORTS
        self._doubt = False
        self._current = False
        self._told = ""
        self.answered_at = steady()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def report(self, kind: str, body: Mapping[str, Any], *, job: str = "", epoch: int = 0) -> None:
        """Keep a report on disk; urgent kinds are forced to it before this returns and sent at once."""
        self._spool.add(kind, body, at=time.time(), job=job, epoch=epoch)
        if kind in URGENT:
            with self._wake:
                self._urgent = True
                self._wake.notify_all()

    def report_found(
        self, found: Sequence[tuple[Mapping[str, Any], str, int]], *, source: str, place: str | None
    ) -> None:
        """Keep findings, (body, job, epoch) each, and up to where their source is told now: all of it, or nothing."""
        if not found and place is None:
            return
        with self._spool.whole():
            for body, job, epoch in found:
                self._spool.add("finding", body, at=time.time(), job=job, epoch=epoch)
            if place is not None:
                self._spool.keep_place(source, place)
        with self._wake:
            self._urgent = self._urgent or bool(found)
            self._wake.notify_all()

    def silence(self, seconds: float) -> None:
        """Send nothing at all for a while (drill)."""
        self._silent_until = steady() + seconds

    def silent(self) -> bool:
        """Return whether a drill keeps this node silent now."""
        return steady() < self._silent_until

    def hold_heartbeats(self, seconds: float) -> None:
        """Send reports but no heartbeats for a while (drill)."""
        self._beats_from = steady() + seconds

    def flush(self, limit_s: float) -> bool:
        """Wait until every report is with the server, at most `limit_s`; return whether they are."""
        end = steady() + limit_s
        with self._wake:
            while self._spool.count() and steady() < end:
                self._urgent = True
                self._wake.notify_all()
                self._wake.wait(0.01)
        return not self._spool.count()

    def stop(self, limit_s: float) -> None:
        """Send what can still be sent within the limit, then end."""
        self.flush(limit_s)
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(timeout=limit_s)

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while self._wait_for_work():
            try:
                self._send()
                wait_s, self._told = FIRST_WAIT_S, ""
            except ReliabilityError as error:
                self._tell(error)
                self._pause(wait_s)
                wait_s = min(2 * wait_s, self._identity().schedule.wait_s)
            except Exception:
                # A defect in handling one answer must not silence the node for good.
                log.exception("sending failed, going on: node=%s", self._identity().node)
                self._pause(LONGEST_WAIT_S)

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not self._stopping:
                now = steady()
                due = max(self._next_beat, self._silent_until)
                if now >= self._silent_until and (self._urgent or now >= due):
                    self._urgent = False
                    return True
                self._wake.wait(min(max(due - now, 0.001), 0.5))
        return False

    def _pause(self, seconds: float) -> None:
        with self._wake:
            self._urgent = True
            end = steady() + seconds
            while not self._stopping and steady() < end:
                self._wake.wait(max(end - steady(), 0.001))

    def _send(self) -> None:
        """Send until no report is left; a heartbeat goes with the first batch when it is due."""
        while True:
            doubting = self._doubt
            spared = steady() < self._findings_from
            reports = [] if doubting else self._spool.next(self._most, findings=not spared)
            beat = self._due_heartbeat()
            if not reports and beat is None and not doubting:
                return
            self._exchange(reports, beat)
            if not (reports or doubting) or self.silent() or self._stopping:
                return

    def _due_heartbeat(self) -> dict[str, Any] | None:
        now = steady()
        if now < self._next_beat or now < self._beats_from:
            if now < self._beats_from:
                self._next_beat = max(self._next_beat, min(self._beats_from, now + self._identity().heartbeat_s))
            return None
        self._next_beat = now + self._identity().heartbeat_s
        return {**self._heartbeat(), "spooled": self._spool.count()}

    def _exchange(self, reports: list[Report], beat: dict[str, Any] | None) -> None:
        identity = self._identity()
        current = self._spool.incarnation
        body = {
            "node": identity.node,
            "incarnation": current,
            "sent_at": time.time(),
            "heartbeat": beat,
            "reports": [report.item(current) for report in reports],
        }
        try:
            answer = self._server.batch(body, token=identity.token)
        except ServerRefused as error:
            self._refused(error, reports, beat)
            return
        except ServerAway:
            self._next_beat = 0.0
            raise
        if not reports:
            self._current, self._doubt = self._doubt, False
        if self._all_stale(answer, reports) and not self._current:
            # Either these reports are old, or this whole agent was replaced; a batch without reports will tell.
            self._doubt = True
            return
        self._current = False
        self._settle(answer, reports)
        self._most = min(2 * self._most, MOST_REPORTS)
        if beat is not None:
            self.answered_at = answer.asked_at
        self._on_answer(answer.body, beat is not None)

    def _all_stale(self, answer: Answer, reports: list[Report]) -> bool:
        codes = [item.get("code") for item in answer.body.get("results", ()) if isinstance(item, dict)]
        return bool(reports) and answer.status == _CONFLICT and set(codes) == {StaleEpoch.code}

    def _settle(self, answer: Answer, reports: list[Report]) -> None:
        by_seq = {
            item["seq"]: item for item in answer.body.get("results", ()) if isinstance(item, dict) and "seq" in item
        }
        taken = [report for report in reports if by_seq.get(report.seq, {}).get("status") in {"accepted", "duplicate"}]
        refused = [report for report in reports if by_seq.get(report.seq, {}).get("status") == "refused"]
        later = any(by_seq.get(report.seq, {}).get("status") == "later" for report in reports)
        self._spool.done(taken)
        for report in refused:
            item = by_seq[report.seq]
            self._spool.refuse(report, code=str(item.get("code", "")), message=str(item.get("message", "")))
        if later:
            self._findings_from = steady() + LATER_S
        elif reports and not (taken or refused):
            raise ServerAway("The server answered without saying which of the reports it took.")

    def _refused(self, error: ServerRefused, reports: list[Report], beat: dict[str, Any] | None) -> None:
        """A whole batch was refused: find the item to blame, or say why this node may not send."""
        if error.status in _MALFORMED and beat is not None and error.field.startswith("heartbeat"):
            log.error(
                "heartbeat refused: node=%s field=%s reason=%s", self._identity().node, error.field, error.message
            )
            self.hold_heartbeats(LONGEST_WAIT_S)  # the reports behind it must not wait for a defect in it
            return
        if error.status in _MALFORMED and len(reports) > 1:
            self._most = max(1, len(reports) // 2)
        elif error.status in _MALFORMED and len(reports) == 1:
            self._spool.refuse(reports[0], code=error.refusal, message=error.message)
        elif error.status == _CONFLICT:
            self._on_stale(error)
            raise error
        else:
            raise error
        if beat is not None:
            self._next_beat = 0.0

    def _tell(self, error: ReliabilityError) -> None:
        """Log a trouble once while it lasts."""
        if error.message != self._told:
            log.warning("not sent, kept: node=%s code=%s reason=%s", self._identity().node, error.code, error.message)
        self._told = error.message
