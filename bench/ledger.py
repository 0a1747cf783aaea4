"""How long do pages and REST take with ten thousand snapshots of 64 ranks in the ledger, and how long does a report?

Each request is made in this process (no network), on a database of its own: SQLite in a file, or the PostgreSQL that
STEPKEEPER_LEDGER_DATABASE_URL names. STEPKEEPER_LEDGER_SNAPSHOTS makes a smaller ledger, STEPKEEPER_LEDGER_ROUNDS asks
less often.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from tests.ops.running import PROJECT, environment

BUILD_LIMIT_S = 1500


def measure() -> Iterator[Figure]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
        env = environment(Path(folder) / "data", VALIDATE_STANDBYS="no", LOG_LEVEL="warning")
        address = os.environ.get("STEPKEEPER_LEDGER_DATABASE_URL")
        smaller = ("STEPKEEPER_LEDGER_SNAPSHOTS", "STEPKEEPER_LEDGER_ROUNDS")
        env |= {name: os.environ[name] for name in smaller if name in os.environ}
        if address:
            env["STEPKEEPER_DATABASE_URL"] = address
        _run(["manage.py", "migrate", "-v0"], env)
        lines = _run(["-m", "bench._ledger"], env)
    for line in lines.splitlines():
        told = json.loads(line)
        yield Figure(name=told["name"], samples=told["samples"], note=told["note"])


def _run(command: list[str], env: dict[str, str]) -> str:
    argv = [sys.executable, *command]
    done = subprocess.run(argv, cwd=PROJECT, env=env, stdout=subprocess.PIPE, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[-1]} ended with {done.returncode}; what it said is above")
    return done.stdout.decode()
