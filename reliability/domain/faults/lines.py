"""Which fault code does a line of a log stand for? All patterns together, in time linear in the text.

A block of a log is searched for literals that lines of faults have; only lines that have one are looked at, and only
with the patterns of that literal. Nearly all lines of an ordinary log are passed over without being touched one by one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from reliability.domain.faults import special_lines
from reliability.domain.faults.phrases import Phrase
from reliability.domain.faults.special_lines import END_LITERALS, STATE_LITERALS, XID_LITERALS
from reliability.domain.faults.table import TABLE, Table
from reliability.domain.faults.text import cleaned, kernel_message, may_follow, may_follow_metrics, parts
from reliability.domain.faults.words import Origin, Told

_SPECIAL_ORIGINS = {"xid": Origin.KERNEL, "end": Origin.TOOL, "state": Origin.TOOL}
_SPECIAL_LITERALS = {"xid": XID_LITERALS, "end": END_LITERALS, "state": STATE_LITERALS}


@dataclass(frozen=True)
class _Rule:
    """One way a line can look; `place` orders rules as the table does."""

    place: int
    code: str
    origin: Origin
    pattern: str
    phrase: Phrase | None = None
    metrics: bool = False

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def told(self, text: str, message: str) -> Told | None:
        """Return what this rule finds. `message` is the text without what a system's log puts before it."""
        if self.code in _SPECIAL_ORIGINS:
            return _special(self.code, text, message)
        if self.phrase is not None:
            fields = self.phrase.fields(message if self.origin is Origin.KERNEL else text)
            return None if fields is None else Told(code=self.code, fields=fields)
        if self.origin is Origin.KERNEL:
            found = self.compiled.match(message)
        else:
            found = self.compiled.search(text)
            follows = may_follow_metrics if self.metrics else may_follow
            if found is not None and not follows(text[: found.start()]):
                found = None
        return None if found is None else Told(code=self.code, fields=special_lines.values(found))


def _special(kind: str, text: str, message: str) -> Told | None:
    if kind == "xid":
        return special_lines.xid(message) or special_lines.sxid(message)
    if kind == "state":
        return special_lines.state(text)
    found = special_lines.end(text)
    return found[0] if found is not None and may_follow(text[: found[1]]) else None


class Matcher:
    """Finds fault codes in lines, by one table."""

    def __init__(self, table: Table = TABLE) -> None:
        self.table = table
        self._rules: dict[bytes, list[_Rule]] = {}
        for kind, literals in _SPECIAL_LITERALS.items():
            self._add(_Rule(-1, kind, _SPECIAL_ORIGINS[kind], ""), literals)
        for place, row in enumerate(table.values()):
            if not row.enabled:
                continue
            for line in row.lines:
                phrase = Phrase(line.pattern.removeprefix("phrase:")) if line.pattern.startswith("phrase:") else None
                self._add(
                    _Rule(place, row.code, row.origin, line.pattern, phrase, row.source == "training"), line.literals
                )
        self._literals = tuple(self._rules)

    def _add(self, rule: _Rule, literals: tuple[str, ...]) -> None:
        for literal in literals:
            self._rules.setdefault(literal.encode(), []).append(rule)

    def find(self, line: bytes | str, *, origin: Origin | None = None) -> Told | None:
        """Return what a line tells, None when it tells of no fault.

        `origin` is who wrote it; without it every form of line is understood. What a program or tool printed never
        counts as a line of the kernel, and the kernel never speaks for a program.
        """
        raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
        text = cleaned(raw.rstrip(b"\n"))
        return self._find(text, [literal for literal in self._literals if literal in text], origin)

    def _find(self, line: bytes, present: list[bytes], origin: Origin | None) -> Told | None:
        """Return what a line with these literals tells."""
        heard = {id(rule): rule for literal in present for rule in self._rules[literal] if _hears(rule.origin, origin)}
        ordered = sorted(heard.values(), key=lambda rule: rule.place)
        for text in parts(line):
            message = kernel_message(text)
            for rule in ordered:
                told = rule.told(text, message)
                if told is not None:
                    return self._enabled(told)
        return None

    def _enabled(self, told: Told) -> Told | None:
        plain = told.code.removesuffix("-nonfatal")
        told = told if told.code in self.table else replace(told, code=plain)
        row = self.table.get(told.code)
        return told if row is None or row.enabled else None

    def scan(self, block: bytes, *, origin: Origin | None = None) -> Iterator[tuple[int, Told]]:
        """Yield (number of the line in the block from 0, what it tells) for the lines that tell something.

        `block` is whole lines; the last one may lack its line end.
        """
        text = cleaned(block)
        line_of, counted_to = 0, 0
        for start, present in sorted(self._suspects(text).items()):
            line_of += text.count(b"\n", counted_to, start)
            counted_to = start
            stop = text.find(b"\n", start)
            told = self._find(text[start : stop if stop >= 0 else len(text)], present, origin)
            if told is not None:
                yield line_of, told

    def _suspects(self, text: bytes) -> dict[int, list[bytes]]:
        """Return where lines begin that have literals, with those literals."""
        suspects: dict[int, list[bytes]] = {}
        for literal in self._literals:
            at = text.find(literal)
            while at >= 0:
                suspects.setdefault(text.rfind(b"\n", 0, at) + 1, []).append(literal)
                stop = text.find(b"\n", at)
                at = text.find(literal, stop) if stop >= 0 else -1
        return suspects


def _hears(written: Origin, asked: Origin | None) -> bool:
    """Return whether a rule for lines of one origin may speak for a line of another."""
    if asked is None:
        return True
    return (written is Origin.KERNEL) == (asked is Origin.KERNEL)


MATCHER = Matcher()
"""Finds codes by the table as shipped."""


def match_line(line: str) -> str | None:
    """Return the fault code of one kernel log line, None when it says nothing of a fault."""
    told = MATCHER.find(line, origin=Origin.KERNEL)
    return None if told is None else told.code
