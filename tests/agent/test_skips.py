"""Batches to be left out: from the start order into each rank's environment, and back who asked for them."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import attempts, payloads
from reliability.agent.folder import JobFolder
from reliability.agent.jobrecord import JobRecord
from reliability.agent.rankfiles import RankFiles
from reliability.errors import InvalidInput
from reliability.trainer import skipped_steps
from reliability.trainer.progress import Progress, ProgressRecord

ORDER: dict[str, Any] = {
    "container": {"program": ["train.py"], "env": {"LANG": "C"}},
    "slot": 0,
    "ranks": [{"rank": 0, "local_rank": 0}, {"rank": 1, "local_rank": 1}],
    "world_size": 2,
    "master_addr": "127.0.0.1",
    "master_port": 29500,
    "skip_steps": [777, 900],
}


def environments(order: Mapping[str, Any], inside: str = "/stepkeeper") -> list[dict[str, str]]:
    told = attempts.order_of(payloads.start(order), job="lm", epoch=3, inside=inside)
    return [rank["env"] for rank in told["ranks"]]


def test_every_rank_finds_the_same_steps_and_without_any_no_variable() -> None:
    assert {env["STEPKEEPER_SKIP_STEPS"] for env in environments(ORDER)} == {"777,900"}
    assert all("STEPKEEPER_SKIP_STEPS" not in env for env in environments({**ORDER, "skip_steps": []}))


@pytest.mark.parametrize("steps", ["777", [-1], ["7"], [1.5]])
def test_steps_that_are_none_are_refused_by_name(steps: object) -> None:
    with pytest.raises(InvalidInput, match="skip_steps"):
        payloads.start({**ORDER, "skip_steps": steps})


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "lm")
    folder.make()
    return folder


def first_steps(folder: JobFolder, epoch: int) -> dict[int, bool]:
    """Return rank -> whether its first step was reported with the word that it asked."""
    record, told = JobRecord(job="lm"), []
    record.begin(epoch, [0, 1], None)
    for rank in (0, 1):
        done = Progress(epoch=epoch, step=1, loss=1.0, wall=1.0, step_s=0.1, restored_step=0, plan_version=1)
        ProgressRecord(folder.root / "run" / f"progress-{rank}").write(done)
    RankFiles(folder, record, lambda kind, body: told.append((kind, body))).look()
    return {body["rank"]: body["skips_read"] for kind, body in told if kind == "first_step"}


def test_the_report_of_a_first_step_says_which_rank_asked_in_this_attempt(folder: JobFolder) -> None:
    skipped_steps(environments(ORDER, str(folder.root))[1])
    assert first_steps(folder, 3) == {0: False, 1: True}
    assert first_steps(folder, 4) == {0: False, 1: False}


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


BAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link": _link,
    "no json": lambda path: path.write_bytes(b"\xff{"),
    "a list": lambda path: path.write_text(json.dumps([3])),
    "much": lambda path: path.write_text(" " * 5_000_000),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_what_a_program_puts_there_instead_stops_nothing(folder: JobFolder, make: Callable[[Path], object]) -> None:
    make(folder.root / "run/skips-0")
    assert first_steps(folder, 3) == {0: False, 1: False}
