"""Does numpy_lm, killed and resumed, end with every bit and every sample of a run that was never interrupted?"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.trainer.node import REPO, Node
from tests.trainer.recovery import EVERY_STEPS, Job, any_step, break_at, results

EXAMPLE = REPO / "examples" / "numpy_lm"
STEPS = 40
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"numpy_lm_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_job(make_node: Callable[..., Node], name: str, out: Path, *, port: int, ranks: int = 3) -> Job:
    nodes = [make_node(f"{name}-{rank}", env=ONE_THREAD) for rank in range(ranks)]
    for node in nodes:
        node.start("numpy")
    options = ["--steps", str(STEPS), "--step-sleep", "0.01", "--batch", "16", "--hidden", "48", "--timeout", "20"]
    program = [str(EXAMPLE / "train.py"), *options, "--out", str(out), "--samples", str(out / "samples")]
    return Job(nodes, program, port=port, env=ONE_THREAD)


@pytest.fixture
def uninterrupted(make_node: Callable[..., Node], tmp_path: Path) -> Path:
    out = tmp_path / "uninterrupted"
    job = make_job(make_node, "u", out, port=21010)
    job.start(1)
    assert [end["exit_code"] for end in job.ends(1)] == [0, 0, 0]
    return out


def test_a_run_killed_twice_ends_with_the_bits_and_samples_of_one_never_interrupted(
    make_node: Callable[..., Node], tmp_path: Path, uninterrupted: Path
):
    out = tmp_path / "recovered"
    job = make_job(make_node, "r", out, port=21011)
    job.start(1)
    break_at(job, 1, 2, any_step(EVERY_STEPS + 1, 19))
    assert [end["exit_code"] for end in job.ends(1)] == [1, 1, 137]
    survivor = job.nodes[1].exit_of(1, 1)["tail"]
    assert "ConnectionError" in survivor
    assert "closed by peer" in survivor
    restored = job.newest_complete()
    job.start(2, restored)
    break_at(job, 2, 0, any_step(restored[1] + EVERY_STEPS + 1, 35))
    job.stop(3)
    again = job.newest_complete()
    assert again > restored
    job.start(4, again)
    assert [end["exit_code"] for end in job.ends(4)] == [0, 0, 0]

    expected, found = results(uninterrupted), results(out)
    assert len({result["weights_sha256"] for result in found}) == 1
    assert found == expected
    records = load("records")
    for rank in range(3):
        sequence = records.consumed(out / f"samples/rank-{rank}.jsonl")
        assert list(sequence) == list(range(1, STEPS + 1))
        assert sequence == records.consumed(uninterrupted / f"samples/rank-{rank}.jsonl")
    assert records.sequence_digest(out / "samples") == records.sequence_digest(uninterrupted / "samples")


def test_the_data_position_comes_from_the_state_and_not_from_the_step():
    """Were it computed from the step, a restored state of another history would not change what is dealt next."""
    text = load("text")
    data = text.ShuffledSamples(1000, seed=1)
    data.deal(30)
    state = {name: value.copy() if hasattr(value, "copy") else value for name, value in data.state_dict().items()}
    expected = [data.deal(90).tolist() for _ in range(40)]  # over the end of several passes
    fresh = text.ShuffledSamples(1000, seed=2)
    fresh.load_state_dict(state)
    assert [fresh.deal(90).tolist() for _ in range(40)] == expected
    every_pass = sorted(sample for batch in expected[10:21] for sample in batch)
    assert len(every_pass) == len(set(every_pass))


def test_ranks_of_another_attempt_are_turned_away(tmp_path: Path):
    program = [sys.executable, str(EXAMPLE / "train.py"), "--steps", "3", "--timeout", "3", "--hidden", "8"]
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_PORT": "21012",
        "PYTHONPATH": str(tmp_path),
        **ONE_THREAD,
    }
    (tmp_path / "stepkeeper").symlink_to(REPO / "reliability" / "trainer")
    ranks = [
        subprocess.Popen(
            program,
            env={**common, "RANK": str(rank), "STEPKEEPER_EPOCH": str(epoch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, epoch in ((0, 2), (1, 1))
    ]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert "ranks [1] did not come within 3 s" in said[0]
    assert "another attempt" in said[1]


def test_gradients_are_those_of_the_loss():
    import numpy as np

    model = load("model").LanguageModel(vocabulary=11, context=3, embedding=4, hidden=5, seed=3)
    generator = np.random.default_rng(0)
    inputs, targets = generator.integers(0, 11, (6, 3)), generator.integers(0, 11, 6)
    for name, array in model.parameters.items():
        model.parameters[name] = array.astype(np.float64)
    _loss, gradients = model.loss_and_gradients(inputs, targets)
    for name, array in model.parameters.items():
        place = np.unravel_index(np.abs(gradients[name]).argmax(), array.shape)
        array[place] += 1e-6
        above, _ = model.loss_and_gradients(inputs, targets)
        array[place] -= 2e-6
        below, _ = model.loss_and_gradients(inputs, targets)
        array[place] += 1e-6
        assert gradients[name][place] == pytest.approx((above - below) / 2e-6, rel=1e-4)
