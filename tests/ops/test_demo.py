"""`manage.py demo` as a person meets it: it comes up by itself with a job that trains, and leaves nothing behind."""

import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ops.running import Up, until

pytestmark = pytest.mark.broker


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Up]:
    installation = Up(folder=tmp_path / "demo", command=("demo",))
    try:
        yield installation
    finally:
        installation.end()


def memory_folders(demo: Up) -> set[Path]:
    """Return the memory tiers that the agents were told to use."""
    commands = (Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in demo.descendants().alive())
    agents = [command for command in commands if "--memory-dir" in command]
    return {Path(command[command.index("--memory-dir") + 1]) for command in agents}


def steps(demo: Up) -> list[int]:
    with sqlite3.connect(demo.folder / "stepkeeper.sqlite3") as database:
        return [step or 0 for (step,) in database.execute("select step from reliability_rank")]


def trains(demo: Up) -> bool:
    reached = steps(demo)
    return len(reached) == 3 and min(reached) > 5


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_demo_trains_on_five_nodes_and_leaves_nothing_however_it_ends(demo: Up, signum: int) -> None:
    demo.ready()
    until(lambda: "Sign in" in demo.output, limit_s=60, what=f"the sign-in is shown; it printed:\n{demo.output}")
    until(lambda: trains(demo), limit_s=60, what="every rank makes steps")
    assert re.search(r"Sign in +admin +password \S{8,}", demo.output)
    descendants, memory = demo.descendants(), memory_folders(demo)
    assert len(memory) == 5
    assert any(folder.is_dir() for folder in memory)
    demo.signal(signum)
    demo.wait(30)
    until(lambda: not descendants.alive(), limit_s=15, what="no process is left")
    until(lambda: not any(folder.exists() for folder in memory), limit_s=5, what="no memory is left")


def test_a_second_demo_begins_afresh_with_the_same_password(demo: Up) -> None:
    demo.ready()
    until(lambda: "Sign in" in demo.output, limit_s=60, what="the sign-in is shown")
    demo.signal(signal.SIGINT)
    assert demo.wait() == 0
    (demo.folder / "storage" / "left-over").touch()
    demo.ready()
    until(lambda: demo.output.count("Sign in") == 2, limit_s=60, what="the sign-in is shown again")
    assert len(set(re.findall(r"password (\S+)", demo.output))) == 1
    assert not (demo.folder / "storage" / "left-over").exists()


def test_an_installation_that_is_not_a_demo_is_never_emptied(demo: Up) -> None:
    demo.folder.mkdir()
    (demo.folder / "stepkeeper.sqlite3").write_text("precious")
    refused = demo.run("demo")
    assert refused.returncode == 1
    assert "is not a demo (there is stepkeeper.sqlite3)" in refused.stderr
    assert (demo.folder / "stepkeeper.sqlite3").read_text() == "precious"


def test_the_job_file_of_the_readme_runs_beside_the_demos_own_job(demo: Up) -> None:
    demo.ready()
    until(lambda: "Sign in" in demo.output, limit_s=60, what="the sign-in is shown")
    submitted = demo.run("job", "submit", "examples/numpy_lm/local.toml", "--start")
    assert submitted.returncode == 0, submitted.stderr
    until(lambda: len(steps(demo)) == 5 and min(steps(demo)) > 5, limit_s=90, what="both jobs make steps")
    demo.signal(signal.SIGINT)
    demo.wait(30)
    assert "up         | stopped" in demo.output
