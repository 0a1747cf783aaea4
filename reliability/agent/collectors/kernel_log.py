"""Follows the kernel's log of this machine and tells the findings in it, as a child of the agent.

Lines are judged as lines of the kernel: what a program printed is never among them. The same at the same place is
counted; what is told comes with the place in the log up to which all is told.
"""

import contextlib
import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.checking import Found
from reliability.agent.collectors.debouncing import Debounce
from reliability.agent.collectors.journal import PROGRAM, Journal
from reliability.agent.collectors.kmsg import DEVICE, Kmsg
from reliability.agent.collectors.logfile import LogFile
from reliability.agent.collectors.sources import OLD_S, Look, Place, Source, SourceLost
from reliability.domain.faults import MATCHER, TABLE, Matcher, Origin
from reliability.domain.faults.changing import changed_row
from reliability.domain.faults.text import cleaned, kernel_message
from reliability.errors import ReliabilityError

LOOK_S = 0.1
"""How often a source that cannot say that it has more is looked at."""
TRY_AGAIN_S = 2.0
OVERRUN, OLD = "kernel-log-overrun", "kernel-log-old"


def opened(kind: str, path: str, place: Place | None, *, programs: bool) -> Source:
    """Return the source of a kind: kmsg, journal or file. Raises SourceLost, or the system's own OSError."""
    if kind == "kmsg":
        return Kmsg(place, path=Path(path) if path else DEVICE, programs=programs)
    if kind == "journal":
        return Journal(place, program=path or PROGRAM, programs=programs)
    return LogFile(place, path=Path(path))


def matcher_of(changes: Mapping[str, Mapping[str, Any]]) -> Matcher:
    """Return what finds codes, with people's changes of the table; a change that cannot be used is left out."""
    rows = []
    for code, values in changes.items():
        with contextlib.suppress(ReliabilityError, ValueError, TypeError, AttributeError):
            rows.append(changed_row(TABLE, code, values))
    if not rows:
        return MATCHER
    try:
        return Matcher(TABLE.changed(rows))
    except ValueError:
        return MATCHER


class KernelLog:
    """One log, its findings, and what is told of them."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._kind, self._path = saying.text(wanted, "kind"), saying.text(wanted, "path")
        self._programs = wanted.get("programs") is not False
        self._place: Place | None = wanted.get("place") if isinstance(wanted.get("place"), dict) else None
        self._matcher = matcher_of(wanted.get("changes") or {})
        self._debounce = Debounce()
        self._source: Source | None = None
        self._tried_at = -TRY_AGAIN_S
        self._beat_at = 0.0
        self._more = False

    def use(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Judge by another table from now on."""
        self._matcher = matcher_of(changes)

    def handles(self) -> list[int]:
        """Return what becomes readable when the log has more."""
        handle = self._source.handle() if self._source else None
        return [] if handle is None else [handle]

    def wait_s(self) -> float:
        """Return how long nothing has to be done unless the log has more."""
        if self._more:
            return 0.0
        looks = LOOK_S if self._source and self._source.handle() is None else saying.BEAT_S
        due = self._debounce.due_at()
        return max(min(looks, self._beat_at - steady(), looks if due is None else due - steady()), 0.0)

    def turn(self) -> None:
        """Look, judge, tell."""
        now = steady()
        if self._source is None and now - self._tried_at >= TRY_AGAIN_S:
            self._open(now)
        if self._source is not None:
            self._look(self._source, now)
        told = self._debounce.tell(now)
        if told:
            saying.say("found", findings=saying.found(told), place=self._place)
        if now >= self._beat_at:
            # All that lies before this place is told, or nothing was found there.
            saying.say("beat", place=self._place if self._debounce.empty() else None)
            self._beat_at = now + saying.BEAT_S

    def _open(self, now: float) -> None:
        self._tried_at = now
        try:
            self._source = opened(self._kind, self._path, self._place, programs=self._programs)
        except (SourceLost, OSError) as error:
            saying.say("state", ok=None, reason=_reason(error))
            return
        self._place = self._source.place
        saying.say("state", ok=True, reason="")

    def _look(self, source: Source, now: float) -> None:
        try:
            look = source.look()
        except (SourceLost, OSError) as error:
            source.close()
            self._source, self._more = None, False
            saying.say("state", ok=None, reason=_reason(error))
            return
        if look.lost:
            evidence = "The kernel overwrote lines of its log before they were read."
            self._debounce.take(Found(code=OVERRUN, evidence=evidence, count=look.lost), now)
        self._judge(look, now)
        self._place, self._more = source.place, look.more

    def _judge(self, look: Look, now: float) -> None:
        for lines, old in ((look.old_lines, True), (look.lines, False)):
            for index, told in self._matcher.scan(b"\n".join(lines), origin=Origin.KERNEL):
                message = kernel_message(cleaned(lines[index][:4096]).decode("utf-8", "replace")).strip()
                found = Found(code=told.code, evidence=message[: saying.EVIDENCE], fields=told.fields)
                self._debounce.take(_as_old(found) if old else found, now)


def _reason(error: SourceLost | OSError) -> str:
    lost = error if isinstance(error, SourceLost) else SourceLost(f"The log cannot be read: {error}.")
    return f"{lost.message} {lost.hint}".rstrip()


def _as_old(found: Found) -> Found:
    evidence = f"Logged more than {OLD_S / 3600:.0f} h before it was read ({found.code}): {found.evidence}"
    return Found(code=OLD, evidence=evidence, fields={"device": str(found.fields.get("device", found.code))})


def serve(hearing: saying.Hearing, wanted: dict[str, Any]) -> None:
    """Follow the log until the agent is gone."""
    log = KernelLog(wanted)
    while True:
        log.turn()
        readable, _, _ = select.select([0, *log.handles()], [], [], log.wait_s())
        if 0 in readable:
            data = os.read(0, 65536)
            for message in hearing.feed(data):
                if isinstance(message.get("changes"), dict):
                    log.use(message["changes"])
            if not data:
                return


if __name__ == "__main__":
    attend(serve)
