"""Do real ranks on several nodes save after the same steps, whenever each hears of a new plan?"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.node import REPO, Node, wait_until, write_whole
from tests.trainer.recovery import EVERY_STEPS, Job

STEPS = 60
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
EXAMPLE = REPO / "examples" / "numpy_lm"
OLD = {"from_step": 0, "every_steps": EVERY_STEPS}


class Listener:
    """The agent's socket of a node: hears of every snapshot, also of those that are let go of later."""

    def __init__(self, node: Node) -> None:
        self.saved: list[int] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(node.root / "run/agent.sock"))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while hint := self._socket.recv(65536):
            told = json.loads(hint)
            if told["t"] == "snapshot":
                self.saved.append(told["step"])

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()


class Ranks:
    """Three real ranks that step together, each on a node of its own."""

    def __init__(self, make_node: Callable[..., Node], out: Path, *, port: int) -> None:
        self.nodes = [make_node(f"node-{rank}", env=ONE_THREAD) for rank in range(3)]
        for node in self.nodes:
            node.start("numpy")
        self.listeners = [Listener(node) for node in self.nodes]
        options = ["--steps", str(STEPS), "--step-sleep", "0.03", "--batch", "8", "--hidden", "16", "--timeout", "20"]
        self.job = Job(self.nodes, [str(EXAMPLE / "train.py"), *options, "--out", str(out)], port=port, env=ONE_THREAD)

    def tell(self, rank: int, at_step: int, *plan: dict[str, int], version: int = 2, epoch: int = 1) -> int:
        """Replace the plan on one node once its rank has made so many steps; return the step it had made by then."""
        wait_until(lambda: self.job.step(rank, epoch) >= at_step, f"rank {rank} at step {at_step}", 60)
        write_whole(self.nodes[rank].root / "ctl/period.json", {"version": version, "plan": [OLD, *plan]})
        return self.job.step(rank, epoch)

    def saved(self, *, epoch: int = 1) -> list[list[int]]:
        """Return after which steps each rank saved, once all have finished."""
        assert [end["exit_code"] for end in self.job.ends(epoch)] == [0, 0, 0]
        wait_until(lambda: all(56 in listener.saved for listener in self.listeners), "the last snapshot heard of")
        return [list(listener.saved) for listener in self.listeners]


@pytest.fixture
def ranks(make_node: Callable[..., Node], tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(make_node, tmp_path / "out", port=21040)
    yield made
    for listener in made.listeners:
        listener.close()


def test_ranks_that_hear_of_a_plan_at_different_steps_change_at_the_announced_one(ranks: Ranks) -> None:
    new = {"from_step": 35, "every_steps": 8}
    ranks.job.start(1)
    for rank, step in enumerate((2, 9, 16)):
        ranks.tell(rank, step, new)
    saved = ranks.saved()
    assert saved[0] == saved[1] == saved[2]
    assert saved[0] == [5, 10, 15, 20, 25, 30, 40, 48, 56]


def test_a_rank_that_hears_too_late_saves_with_the_others_from_then_on(ranks: Ranks) -> None:
    new = {"from_step": 20, "every_steps": 8}
    ranks.job.start(1)
    ranks.tell(0, 2, new)
    ranks.tell(1, 2, new)
    heard = ranks.tell(2, 31, new)
    saved = ranks.saved()
    assert saved[0] == saved[1] == [5, 10, 15, 24, 32, 40, 48, 56]
    assert [step for step in saved[2] if step > heard + 1] == [step for step in saved[0] if step > heard + 1]
    assert ranks.job.newest_complete() == (1, 56)


def test_a_plan_that_is_put_off_in_time_changes_nothing_at_its_first_step(ranks: Ranks) -> None:
    ranks.job.start(1)
    for rank in (0, 1):
        ranks.tell(rank, 2, {"from_step": 30, "every_steps": 8})
    for rank in (0, 1, 2):
        ranks.tell(rank, 12, {"from_step": 45, "every_steps": 8}, version=3)
    saved = ranks.saved()
    assert saved[0] == saved[1] == saved[2] == [*range(5, 45, 5), 48, 56]


def test_an_attempt_that_begins_before_the_announced_step_saves_as_announced_on_all_ranks(ranks: Ranks) -> None:
    new = {"from_step": 30, "every_steps": 8}
    ranks.job.start(1)
    for rank in (0, 1):
        ranks.tell(rank, 2, new)
    wait_until(lambda: ranks.job.step(0, 1) >= 22, "step 22", 60)
    ranks.job.stop(2)
    restored = ranks.job.newest_complete()
    write_whole(ranks.nodes[2].root / "ctl/period.json", {"version": 2, "plan": [OLD, new]})
    before = [len(listener.saved) for listener in ranks.listeners]
    ranks.job.start(3, restored)
    saved = [steps[count:] for steps, count in zip(ranks.saved(epoch=3), before, strict=True)]
    assert saved[0] == saved[1] == saved[2]
    assert saved[0] == [*range(restored[1] + 5, 30, 5), 32, 40, 48, 56]
