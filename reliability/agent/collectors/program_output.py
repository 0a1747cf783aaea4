"""Follows what the ranks of this node print and tells the findings in it, as a child of the agent.

Lines are judged as a program's own: they never speak for the kernel. Only what would be an error is told; the server
notes it, and holds it against nobody while the rank that printed it goes on.
"""

import errno
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.checking import Found
from reliability.agent.collectors.debouncing import Debounce
from reliability.agent.collectors.kernel_log import matcher_of
from reliability.agent.collectors.logfile import LogFile
from reliability.agent.collectors.sources import SourceLost
from reliability.domain.faults import Origin, Severity
from reliability.domain.faults.text import cleaned

LOOK_S = 0.2
NOTHING_READ = {"inode": 0, "head": "", "length": 0, "offset": 0}
TOLD = (Severity.ERROR, Severity.FATAL)
LOOKS_AT_ONCE = 4
"""So much of one rank's output (256 KiB each) is read before the next rank's.

Of one that prints more than 5 MB a second it falls behind, and does not take the processor from those that train.
"""
NICE = 10
_ODD = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass
class _Output:
    """The output of one rank of an attempt, and what of it waits to be told."""

    job: str
    epoch: int
    rank: int
    path: Path
    fresh: bool
    debounce: Debounce
    log: LogFile | None = None
    wrong: str = ""

    def lines(self) -> list[bytes]:
        """Return what was printed since the last look; nothing while it cannot be read, for the reason in `wrong`."""
        try:
            if self.log is None:
                self.log = LogFile(NOTHING_READ if self.fresh else None, path=self.path, strictly=True)
            look = self.log.look()
        except (SourceLost, OSError) as error:
            self.close()
            self.wrong = _wrong(self.path, error)
            return []
        found = [*look.old_lines, *look.lines]
        self.wrong, self.fresh = "", self.fresh and not found
        return found

    def close(self) -> None:
        """Let the file go."""
        if self.log is not None:
            self.log.close()
            self.log = None


def _wrong(path: Path, error: SourceLost | OSError) -> str:
    """Return why an output cannot be read, "" when the program put something else there, or nothing."""
    cause = error if isinstance(error, OSError) else error.__cause__
    odd = not isinstance(cause, OSError) or cause.errno in _ODD
    return "" if odd else f"{path} cannot be read: {cause.strerror}."  # type: ignore[union-attr]


class ProgramOutput:
    """The outputs that are followed now."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._matcher = matcher_of(wanted.get("changes") or {})
        self._outputs: dict[str, _Output] = {}
        self._beat_at = 0.0
        self.use(wanted)

    def use(self, news: Mapping[str, Any]) -> None:
        """Follow other outputs, or judge by another table, from now on."""
        if isinstance(news.get("changes"), dict):
            self._matcher = matcher_of(news["changes"])
        if isinstance(news.get("outputs"), list):
            self._follow(news["outputs"])

    def _follow(self, wanted: list[dict[str, Any]]) -> None:
        paths = {str(each["path"]) for each in wanted}
        for gone in self._outputs.keys() - paths:
            self._outputs.pop(gone).close()
        for each in wanted:
            path = str(each["path"])
            if path not in self._outputs:
                place = {"job": each["job"], "epoch": each["epoch"], "rank": each["rank"], "fresh": each["fresh"]}
                self._outputs[path] = _Output(path=Path(path), debounce=Debounce(), **place)

    def turn(self) -> None:
        """Look, judge, tell."""
        for each in self._outputs.values():
            for _ in range(LOOKS_AT_ONCE):
                lines = each.lines()
                self._judge(each, lines)
                if not lines:
                    break
            told = each.debounce.tell(steady())
            if told:
                saying.say("found", job=each.job, epoch=each.epoch, findings=saying.found(told))
        if steady() >= self._beat_at:
            wrong = sorted({each.wrong for each in self._outputs.values() if each.wrong})
            more = f" So it is with {len(wrong) - 1} more." if len(wrong) > 1 else ""
            saying.say("state", ok=None if wrong else True, reason=f"{wrong[0]}{more}" if wrong else "")
            self._beat_at = steady() + saying.BEAT_S

    def _judge(self, output: _Output, lines: list[bytes]) -> None:
        for index, told in self._matcher.scan(b"\n".join(lines), origin=Origin.OUTPUT):
            row = self._matcher.table.lookup(told.code)
            if row.enabled and row.severity in TOLD and row.source != "exit-code":
                said = cleaned(lines[index][:4096]).decode("utf-8", "replace").strip()
                evidence = said[: saying.EVIDENCE]
                found = Found(code=told.code, evidence=evidence, fields=told.fields, rank=output.rank)
                output.debounce.take(found, steady())


def serve(hearing: saying.Hearing, wanted: dict[str, Any]) -> None:
    """Follow them until the agent is gone."""
    os.nice(NICE)
    output = ProgramOutput(wanted)
    while True:
        output.turn()
        readable, _, _ = select.select([0], [], [], LOOK_S)
        if readable:
            data = os.read(0, 65536)
            for message in hearing.feed(data):
                output.use(message)
            if not data:
                return


if __name__ == "__main__":
    attend(serve)
