"""Fixtures of the trainer's tests: job folders, launchers, and an interpreter with PyTorch and what builds on it."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.node import REPO, Node

TORCH = (
    "torch==2.13.0",
    "numpy==2.4.6",
    "xxhash==4.1.0",
    "transformers==5.24.0",  # its Trainer, which needs accelerate
    "accelerate==1.15.0",
    "lightning==2.6.6",
)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Make nodes whose launchers are ended with the test."""
    made: list[Node] = []

    def make(name: str = "node", **options: object) -> Node:
        node = Node(tmp_path / name, **options)
        made.append(node)
        return node

    yield make
    for node in made:
        node.stop()


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch: STEPKEEPER_TORCH_PYTHON, or an environment kept under build/."""
    given = os.environ.get("STEPKEEPER_TORCH_PYTHON")
    if given:
        return given
    home = REPO / "build" / "torch-venv"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / "torch-venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs share it
        return _made(home)


def _made(home: Path) -> str:
    python = home / "bin" / "python"
    complete = home / "complete"
    if not complete.exists() or complete.read_text() != "\n".join(TORCH):
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *TORCH], check=True, timeout=1500)
        complete.write_text("\n".join(TORCH))
    return str(python)
