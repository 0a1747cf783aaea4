"""Does the launcher end its ranks by their lease when no agent does, and only then?"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.node import Node, alive, wait_until, write_whole

MakeNode = Callable[..., Node]

STEPPER = """
import os, sys, time
from reliability.trainer.progress import Progress, ProgressRecord
record = ProgressRecord(__import__("pathlib").Path(os.environ["STEPKEEPER_DIR"]) / "run" / "progress-0")
step, last = 0, int(sys.argv[1])
while True:
    if step < last:
        step += 1
        now = time.time()
        record.write(Progress(epoch=1, step=step, loss=0.1, wall=now, step_s=0.01, restored_step=0, plan_version=0))
    time.sleep(0.01)
"""


@pytest.fixture
def node(make_node: MakeNode, tmp_path: Path) -> Node:
    (tmp_path / "stepper.py").write_text(STEPPER)
    return make_node()


def give_lease(node: Node, left_s: float, rule: str, **given: float) -> None:
    until = time.clock_gettime(time.CLOCK_BOOTTIME) + left_s
    lease = {"until": until, "lease_s": 0.3, "rule": rule, "startup_s": 30.0, "slow_steps": 3.0, **given}
    write_whole(node.root / "ctl/lease.json", lease)


def begin(node: Node, tmp_path: Path, *, last_step: int = 10**9) -> int:
    node.start()
    node.order(1, [str(tmp_path / "stepper.py"), str(last_step)])
    pid = node.pids(1)["0"]
    wait_until(lambda: (node.root / "run/progress-0").exists(), "the first step")
    return pid


def still_runs(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end or not alive(pid), "the time to pass")
    return alive(pid)


def test_the_rule_stop_ends_ranks_that_step_and_says_why(node: Node, tmp_path: Path) -> None:
    give_lease(node, 2.0, "stop")
    pid = begin(node, tmp_path)
    given_at = time.monotonic()
    give_lease(node, 0.8, "stop")
    ended = node.exit_of(1)
    assert 0.7 < time.monotonic() - given_at < 3
    assert not alive(pid)
    assert (ended["exit_code"], ended["signal"], ended["ordered"]) == (137, 9, True)
    assert "the lease ran out" in ended["reason"]
    assert ended["reason"] in ended["tail"]


def test_a_lease_that_is_renewed_ends_nothing(node: Node, tmp_path: Path) -> None:
    give_lease(node, 2.0, "stop")
    pid = begin(node, tmp_path)
    for _ in range(5):
        give_lease(node, 0.6, "stop")
        assert still_runs(pid, 0.3)


def test_ranks_that_step_go_on_without_a_lease_where_they_are_the_proof(node: Node, tmp_path: Path) -> None:
    give_lease(node, 0.0, "stop_when_stuck")
    assert still_runs(begin(node, tmp_path), 1.5)


def test_ranks_that_are_stuck_end_with_their_lease(node: Node, tmp_path: Path) -> None:
    give_lease(node, 0.0, "stop_when_stuck")
    begin(node, tmp_path, last_step=5)
    assert "no step for" in node.exit_of(1)["reason"]


def test_ranks_without_a_first_step_are_starting_and_not_stuck(node: Node, tmp_path: Path) -> None:
    give_lease(node, 0.0, "stop_when_stuck", startup_s=1.2)
    began = time.monotonic()
    node.start()
    node.order(1, [str(tmp_path / "stepper.py"), "0"])
    node.exit_of(1)
    assert time.monotonic() - began > 1.2


@pytest.mark.parametrize("content", ['{"until": 0', '{"until": "x"}', "[]", "{}"])
def test_a_lease_that_cannot_be_read_ends_nothing(node: Node, tmp_path: Path, content: str) -> None:
    write_whole(node.root / "ctl/lease.json", content)
    assert still_runs(begin(node, tmp_path), 0.6)


def test_the_rule_keep_ends_nothing(node: Node, tmp_path: Path) -> None:
    give_lease(node, -100.0, "keep")
    assert still_runs(begin(node, tmp_path, last_step=1), 0.8)


def test_a_launcher_whose_lease_ran_out_starts_the_next_attempt(node: Node, tmp_path: Path) -> None:
    give_lease(node, 0.0, "stop")
    node.start()
    node.order(1, [str(tmp_path / "stepper.py"), "9"])
    node.exit_of(1)
    give_lease(node, 60.0, "stop")
    node.order(2, [str(tmp_path / "stepper.py"), "9"])
    assert still_runs(node.pids(2)["0"], 0.5)


def test_a_rank_that_cannot_be_forked_leaves_no_open_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reliability.trainer.folder import JobFolder
    from reliability.trainer.launcher import attempts
    from reliability.trainer.launcher.orders import EpochOrder, RankOrder

    folder = JobFolder(tmp_path / "job")
    folder.make()
    open_before = len(list(Path("/proc/self/fd").iterdir()))

    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(attempts.os, "fork", no_fork)
    order = EpochOrder(
        epoch=1, stop=False, program=("x",), mode="fork", workdir="", ranks=(RankOrder(rank=0, local_rank=0, env={}),)
    )
    runner = attempts.Attempts(folder, "")
    opened = len(list(Path("/proc/self/fd").iterdir())) - open_before
    for _ in range(5):
        runner.start(order, ())
    assert len(list(Path("/proc/self/fd").iterdir())) - open_before <= opened + 1
