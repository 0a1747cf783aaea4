"""What the commands for people share: errors as one sentence with advice, tables in columns, who is asking."""

import getpass
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.core.management import CommandError
from django.db import DatabaseError
from django.utils import timezone

from reliability.errors import ReliabilityError
from reliability.models import Job, Node
from reliability.supervisor.status import STATUS_NAME

Row = TypeVar("Row", Job, Node)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what services raise into a message with its advice, and exit code 1."""
    try:
        yield
    except ReliabilityError as error:
        raise CommandError(f"{error}\n  {error.hint}" if error.hint else str(error)) from error
    except DatabaseError as error:
        raise CommandError(
            f"The database does not answer as it should: {error}\n  Run 'manage.py up' or 'manage.py migrate' first."
        ) from error


@contextmanager
def pipe_that_may_end() -> Iterator[None]:
    """Let whoever reads the output, such as `head`, stop reading: that is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def caller() -> str:
    """Return who runs the command, as it is written into the history."""
    return f"{getpass.getuser()} (command line)"


def job_named(name: str) -> Job:
    """Return a job. Raises CommandError that lists those there are."""
    return _named(Job, name, "job")


def node_named(name: str) -> Node:
    """Return a node. Raises CommandError that lists those there are."""
    return _named(Node, name, "node")


def _named(model: type[Row], name: str, what: str) -> Row:
    found = model.objects.filter(name=name).first()
    if found is None:
        names = ", ".join(model.objects.values_list("name", flat=True)[:10])
        raise CommandError(
            f"There is no {what} {name!r}. " + (f"There are: {names}." if names else "There is none yet.")
        )
    return found


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows in columns as wide as their widest cell."""
    cells = [tuple(headings), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def page_address(path: str) -> str:
    """Return the full address of a page: where `up` runs it now, or else where the settings say."""
    try:
        found = json.loads((settings.DATA_DIR / STATUS_NAME).read_text())["address"]
    except (OSError, ValueError, KeyError):
        found = ""
    return f"{(found or f'http://{settings.LISTEN}').rstrip('/')}{path}"


def ago(instant: datetime | None) -> str:
    """Return how long ago an instant was, in words."""
    if instant is None:
        return "never"
    return f"{(timezone.now() - instant).total_seconds():.0f} s ago"
