"""An installation of its own for every test that starts one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ops.running import Up


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """An installation that is not started yet, and is ended after the test."""
    installation = Up(folder=tmp_path / "data")
    try:
        yield installation
    finally:
        installation.end()
