"""Frameworks with checkpoints of their own: trained, killed with -9, and resumed, each goes on bit for bit.

The real libraries, in the environment with PyTorch: Hugging Face's Trainer, Lightning, torch.distributed.checkpoint.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.domain.program_folders import FolderRule, SealedBy
from tests.trainer.node import REPO, Node, wait_until
from tests.trainer.programs import ProgramNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
STEPS_AFTER = 8
RULE = FolderRule(sealed_by=SealedBy.MARKER)


def losses(path: Path) -> list[tuple[int, str]]:
    """Return (step, loss) of every whole line of a run's record."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines if line.endswith("\n")]


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """A module path with the client on it, as an image has it installed."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "stepkeeper").symlink_to(REPO / "reliability" / "trainer")
    return str(tmp_path / "packages")


@pytest.mark.parametrize(
    ("example", "every", "ranks"), [("huggingface", 24, 1), ("lightning", 12, 1), ("torch_dcp", 8, 2)]
)
def test_a_run_that_was_killed_goes_on_from_its_snapshot_with_the_losses_of_one_that_was_not(
    make_node: Callable[..., Node],
    tmp_path: Path,
    torch_python: str,
    packages: str,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    every: int,
    ranks: int,
) -> None:
    """What the first run trained after its snapshot, before it was killed, is the run that was not interrupted."""
    node = make_node(env=QUIET)
    node.start()
    job = ProgramNode(node, tmp_path, RULE, monkeypatch, ranks=ranks)
    program = [torch_python, str(REPO / "examples" / example / "train.py"), "--losses"]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "24411", "PYTHONPATH": packages, **QUIET}
    job.begin([*program, str(tmp_path / "first"), "--steps", "100000"], every=every, **world)
    if example == "lightning":  # where a file has the name of the step, the first save fails
        (job.folder.out / "node" / f"step-{every}").touch()
    shard = job.sealed()
    assert (f"no snapshot after step {every}, training goes on" in job.logs()) == (example == "lightning")
    wait_until(lambda: losses(tmp_path / "first")[-1][0] > shard.step + STEPS_AFTER, "steps after the snapshot", 60)
    job.kill()
    job.restore(shard)
    last = str(shard.step + STEPS_AFTER)
    job.begin([*program, str(tmp_path / "second"), "--steps", last], every=every, restore=shard, **world)
    assert [node.exit_of(2, rank, limit_s=120)["exit_code"] for rank in range(ranks)] == [0] * ranks, job.logs()
    expected = dict(losses(tmp_path / "first"))
    again = losses(tmp_path / "second")
    assert [step for step, _loss in again] == list(range(shard.step + 1, shard.step + STEPS_AFTER + 1))
    assert again == [(step, expected[step]) for step, _loss in again]
    assert job.said == []


@pytest.mark.parametrize("fails", ["gathering", "seal", "save", "lightning"])
def test_a_save_that_fails_on_one_rank_leaves_nothing_and_holds_no_other_rank_up(
    tmp_path: Path, torch_python: str, packages: str, fails: str
) -> None:
    (tmp_path / "out").mkdir()
    common = {"PYTHONPATH": packages, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "24412", "WORLD_SIZE": "2", **QUIET}
    started = [
        subprocess.Popen(
            [torch_python, str(Path(__file__).with_name("failing_saves.py")), str(tmp_path / "out"), fails],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for each in started:
        try:
            out, told = each.communicate(timeout=120)
        finally:
            each.kill()
        assert (each.returncode, out) == (0, "went on\n"), told
        assert told.count("no snapshot after step 1, training goes on") == 1
        assert "after step 2" not in told
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step-2"]


def test_the_wheel_holds_the_integrations_and_none_is_imported_by_the_client() -> None:
    probe = "import sys, stepkeeper; print([n for n in sys.modules if 'integrations' in n])"
    env = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert '"stepkeeper.integrations"' in (REPO / "reliability/trainer/pyproject.toml").read_text()
