"""`manage.py` where something is missing: one line that says what to do."""

import subprocess
import sys

from tests.ops.running import PROJECT


def test_a_python_without_django_is_told_where_the_right_one_is() -> None:
    bare = [sys.executable, "-S", "-E", "manage.py", "job", "list"]
    answer = subprocess.run(bare, cwd=PROJECT, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 1
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "make venv" in answer.stderr
