"""Batches that are left out: every rank is told the same, and a program that asks leaves word that it knows."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.trainer import ConfigurationError, skipped_steps
from tests.trainer.node import REPO, Node
from tests.trainer.recovery import Job, results
from tests.trainer.test_numpy_lm import load

EXAMPLE = REPO / "examples" / "numpy_lm"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def test_outside_a_guarded_run_nothing_is_skipped() -> None:
    assert skipped_steps({}) == frozenset()


def test_a_guarded_rank_is_told_the_steps_and_leaves_word(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    told = {"STEPKEEPER_DIR": str(tmp_path), "STEPKEEPER_EPOCH": "4", "RANK": "2", "STEPKEEPER_SKIP_STEPS": "900,777"}
    assert skipped_steps(told) == {777, 900}
    assert json.loads((tmp_path / "run/skips-2").read_text()) == {"epoch": 4, "steps": [777, 900]}


def test_that_it_cannot_leave_word_does_not_stop_training(tmp_path: Path) -> None:
    told = {"STEPKEEPER_DIR": str(tmp_path / "gone"), "STEPKEEPER_SKIP_STEPS": "7"}
    assert skipped_steps(told) == {7}


@pytest.mark.parametrize("text", ["seven", "7;8", "0", "-3"])
def test_what_is_no_list_of_steps_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="STEPKEEPER_SKIP_STEPS must be steps"):
        skipped_steps({"STEPKEEPER_SKIP_STEPS": text})


def test_all_ranks_of_the_example_leave_out_the_same_batches_and_hold_the_same_weights(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    digests = {}
    nodes = [make_node(f"k-{rank}", env=ONE_THREAD) for rank in range(2)]
    for node in nodes:
        node.start("numpy")
    for epoch, (name, skips) in enumerate((("all", ""), ("less", "6,11")), start=1):
        out = tmp_path / name
        options = ["--steps", "14", "--batch", "8", "--hidden", "16", "--out", str(out), "--samples", str(out / "s")]
        env = {**ONE_THREAD, "STEPKEEPER_SKIP_STEPS": skips}
        job = Job(nodes, [str(EXAMPLE / "train.py"), *options], port=21030 + os.getpid() % 500, env=env)
        job.start(epoch)
        assert [end["exit_code"] for end in job.ends(epoch)] == [0, 0]
        found = {result["weights_sha256"] for result in results(out)}
        assert len(found) == 1
        digests[name] = found
    assert digests["all"] != digests["less"]
    records = load("records")
    for rank in range(2):
        every, fewer = (records.consumed(tmp_path / name / f"s/rank-{rank}.jsonl") for name in ("all", "less"))
        assert fewer == {step: ids for step, ids in every.items() if step not in (6, 11)}
        assert json.loads((nodes[rank].root / f"run/skips-{rank}").read_text())["steps"] == [6, 11]
