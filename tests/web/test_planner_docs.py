"""What docs/planner.md shows is what the commands in it print."""

import re
import shlex
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from reliability.domain.planner.published import TABLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "planner.md"
SHOWN = re.findall(r"```\n\$ python manage\.py (.+)\n((?:.*\n)*?)```", PAGE.read_text())
TOOK = re.compile(r"\d+\.\d s, seed")


def _plain(text: str) -> list[str]:
    """Return the lines without what differs from run to run: how long a simulation took."""
    return [TOOK.sub("seed", line.rstrip()) for line in text.rstrip().splitlines()]


@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_page_shows(command: str, printed: str) -> None:
    out = StringIO()
    call_command(*shlex.split(command), stdout=out)
    assert _plain(out.getvalue()) == _plain(printed)


def test_every_published_table_is_on_the_page() -> None:
    told = {command.split()[-1] for command, _ in SHOWN if "--published" in command}
    assert told == set(TABLES)
