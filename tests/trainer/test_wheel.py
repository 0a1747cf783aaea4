"""Does the client install as the wheel `stepkeeper`, alone, and does its launcher start from there?"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.trainer.node import REPO, Node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import sys
import stepkeeper
import stepkeeper.integrations.steps
run = stepkeeper.attach()
run.register("n", get=dict, set=dict)
run.restore()
run.step(1)
print(stepkeeper.__version__, stepkeeper.__file__.split("/")[-2:], "reliability" in sys.modules)
"""


class WheelNode(Node):
    """A node whose launcher is started by the wheel's name, with nothing of the repository in sight."""

    module = "stepkeeper.launcher"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"
    shutil.copytree(REPO / "reliability" / "trainer", source, ignore=shutil.ignore_patterns("__pycache__", "build"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(home), str(source)], check=True, timeout=300)
    (wheel,) = home.glob("stepkeeper-0.1.0-*.whl")
    venv.create(home / "venv", symlinks=True)
    inside = home / "venv" / "bin" / "python"
    target = next((home / "venv" / "lib").iterdir()) / "site-packages"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=300)
    return str(inside)


def test_a_program_is_run_by_the_installed_launcher_with_the_installed_client(python: str, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    node = WheelNode(tmp_path / "node", python=python, env={"PYTHONPATH": ""})
    try:
        node.start("stepkeeper")
        guarded = {"STEPKEEPER_DIR": str(node.root), "STEPKEEPER_JOB": "j", "STEPKEEPER_EPOCH": "1"}
        node.order(1, [str(program)], [guarded])
        assert node.exit_of(1)["tail"] == "0.1.0 ['stepkeeper', '__init__.py'] False\n"
    finally:
        node.stop()
    assert not os.path.lexists(node.root / "run/client")
