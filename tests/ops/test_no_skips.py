"""The plugin that keeps a suite that could not run from looking green."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.running import PROJECT

SKIPPED = "import pytest\n\ndef test_runs(): pass\n\n@pytest.mark.skip(reason='no engine')\ndef test_skipped(): pass\n"


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_skip_fails_the_run_in_ci_only(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(SKIPPED)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:django",
        "-p",
        "tests.plugins.no_skips",
        "-c",
        "/dev/null",
        str(tmp_path),
    ]
    env = os.environ | {"CI": ci, "PYTHONPATH": str(PROJECT)}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, run.stdout + run.stderr
    assert ("which is a failure in CI" in run.stdout) == bool(ci)
    assert "1 passed, 1 skipped" in run.stdout
