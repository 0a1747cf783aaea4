"""manage.py judge: which fault does each line of a log tell of, and what would be done about it?"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from reliability.domain.faults import MATCHER, Matcher, Origin, Told
from reliability.domain.faults.streams import Lines
from reliability.management.console import pipe_that_may_end
from reliability.selectors import fault_codes

CHUNK_BYTES = 1 << 17
NAMES = ("source", "code", "class", "severity", "action", "fields")
NOTHING = json.dumps(dict.fromkeys(NAMES)) + "\n"


class Command(BaseCommand):
    """Judges lines of standard input as they come. Works without a database, by the table as shipped."""

    help = (
        "Read lines of a log from standard input and say which fault each of them alone tells of: its code, class, "
        "severity, action and fields. Example: dmesg | manage.py judge"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the form of the answer, the table, and who wrote the lines."""
        parser.add_argument("--json", action="store_true", help="one JSON object a line, in the order of the lines")
        parser.add_argument(
            "--table",
            choices=("product", "builtin"),
            default="product",
            help="with the changes people made to the table (where there is a database), or as shipped",
        )
        parser.add_argument(
            "--origin",
            choices=[str(each) for each in Origin],
            help="who wrote the lines; without it every form of line is understood. What a program printed (output) "
            "never counts as a line of the kernel",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Judge until the input ends, or nobody reads the answers any more."""
        matcher = MATCHER if options["table"] == "builtin" else self._product()
        origin = Origin(options["origin"]) if options["origin"] else None
        judged = _as_json if options["json"] else _as_sentences
        try:
            with pipe_that_may_end():
                for told in judged(matcher, origin):
                    sys.stdout.write(told)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            raise CommandError("Interrupted.", returncode=130) from None

    def _product(self) -> Matcher:
        """Return what finds codes by the table in force; by the one as shipped where no database answers."""
        settings = connection.settings_dict
        if connection.vendor == "sqlite" and not Path(str(settings["NAME"])).exists():
            return MATCHER  # looking would make an empty file
        try:
            return fault_codes.matcher()
        except DatabaseError as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self.stderr.write(f"No database answers ({first}): the table is taken as shipped.")
            return MATCHER


def _blocks() -> Iterator[bytes]:
    """Yield whole lines of standard input as soon as they are there."""
    lines, source = Lines(), sys.stdin.fileno()
    while chunk := os.read(source, CHUNK_BYTES):
        if block := lines.feed(chunk):
            yield block
    if left := lines.rest():
        yield left


def _count(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _as_json(matcher: Matcher, origin: Origin | None) -> Iterator[str]:
    for block in _blocks():
        parts, done = list[str](), 0
        for number, told in matcher.scan(block, origin=origin):
            parts += [NOTHING * (number - done), json.dumps(as_object(matcher, told)), "\n"]
            done = number + 1
        parts.append(NOTHING * (_count(block) - done))
        yield "".join(parts)


def as_object(matcher: Matcher, told: Told) -> dict[str, Any]:
    """Return what a line tells as the command prints it."""
    row = matcher.table.lookup(told.code)
    return {
        "source": row.source,
        "code": told.code,
        "class": str(row.fault_class),
        "severity": str(row.severity),
        "action": str(row.action),
        "fields": dict(told.fields),
    }


def _as_sentences(matcher: Matcher, origin: Origin | None) -> Iterator[str]:
    lines = found = 0
    for block in _blocks():
        for number, told in matcher.scan(block, origin=origin):
            found += 1
            yield _sentence(matcher, lines + number + 1, told)
        lines += _count(block)
    yield f"{found:,} of {lines:,} lines tell of a fault.\n"


def _sentence(matcher: Matcher, number: int, told: Told) -> str:
    row = matcher.table.lookup(told.code)
    fields = ", ".join(f"{name} {value}" for name, value in told.fields.items())
    what = f"{row.fault_class}, {row.severity}: {row.action.replace('_', ' ')}"
    return f"line {number}: {told.code} ({what}){f' [{fields}]' if fields else ''}\n  {row.meaning} {row.advice}\n"
