"""The services behave the same on PostgreSQL: their own tests are run again on a real server.

Row locks, constraint errors and types differ from SQLite's; the suite is the same, only the database is another.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Server

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(580)]
ROOT = Path(__file__).resolve().parents[2]


CORE = {
    "recovery": "lost_node or killed_rank or fails_its_check or corrupt or cannot_start",
    "interruptions": "inside",
    "approval": "",
    "reports": "",
    "ingest": "",
    "checks": "",
    "drills": "",
    "plans": "take_over or after_the_same or put_off or twice",
    "plan_inputs": "",
    "plan_history": "kept or drills",
    "plan_automatic": "reason or lost or wins",
    "plan_endings": "",
    "plan_concurrency": "",
    "two_connections": "",
    "whose_word_counts": "",
    "keeping": "",
    "ledger": "",
    "bad_copies": "while",
    "second_look": "fails_twice or only_node",
}
"""Test module -> which of its tests; empty means all. Paths that SQLite and PostgreSQL walk alike are not repeated."""


@pytest.mark.parametrize("part", CORE)
def test_the_services_pass_their_own_tests_on_postgresql(postgres: Server, part: str) -> None:
    url = f"postgresql://stepkeeper@127.0.0.1:{postgres.port}/postgres"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"tests/services/test_{part}.py",
            "-k",
            CORE[part],
        ],
        cwd=ROOT,
        env={**os.environ, "STEPKEEPER_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
