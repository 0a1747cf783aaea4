"""The services behave the same on PostgreSQL: their own tests are run again on a real server.

Row locks, constraint errors and types differ from SQLite's; the suite is the same, only the database is another.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Server

LIMIT_S = 900
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(LIMIT_S + 60)]
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
    "reading_together": "",
    "bad_copies": "while",
    "second_look": "fails_twice or only_node",
}
"""Test module -> which of its tests; empty means all. Paths that SQLite and PostgreSQL walk alike are not repeated."""


def test_the_services_pass_their_own_tests_on_postgresql(postgres: Server) -> None:
    """All in one process: making the tables anew for each module takes longer than most of its tests."""
    url = f"postgresql://stepkeeper@127.0.0.1:{postgres.port}/postgres"
    chosen = [f"(test_{part}.py and ({which}))" if which else f"test_{part}.py" for part, which in CORE.items()]
    modules = [f"tests/services/test_{part}.py" for part in CORE]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *modules, "-k", " or ".join(chosen)],
        cwd=ROOT,
        env={**os.environ, "STEPKEEPER_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    assert all(f"tests/services/test_{part}.py " in done.stdout for part in CORE), "every module has tests that ran"
