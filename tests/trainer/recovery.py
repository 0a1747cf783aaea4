"""Plays an agent for several nodes of one job: starts attempts, restores the newest step all ranks have, ends them."""

import json
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.trainer import progress
from tests.trainer.node import Node, wait_until, write_whole
from tests.trainer.shards import seal_all

EVERY_STEPS = 5


class Job:
    """A job of one rank a node, on loopback."""

    def __init__(self, nodes: Sequence[Node], program: Sequence[str], *, port: int, env: Mapping[str, str]) -> None:
        self.nodes = nodes
        self._program = program
        self._port = port
        self._env = env
        plan = {"version": 1, "plan": [{"from_step": 0, "every_steps": EVERY_STEPS}]}
        for node in nodes:
            write_whole(node.root / "ctl/period.json", plan)

    def start(self, epoch: int, restore: tuple[int, int] | None = None) -> None:
        """Order an attempt on all nodes; `restore` is (epoch, step) of the snapshot."""
        for rank, node in enumerate(self.nodes):
            env = {
                **self._env,
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(len(self.nodes)),
                "LOCAL_WORLD_SIZE": "1",
                "GROUP_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self._port),
                "STEPKEEPER_DIR": str(node.root),
                "STEPKEEPER_JOB": "job",
                "STEPKEEPER_EPOCH": str(epoch),
            }
            if restore:
                env["STEPKEEPER_RESTORE"] = str(node.root / f"mem/e{restore[0]}-s{restore[1]}-r{rank}.json")
            node.order(epoch, self._program, [env], first_rank=rank)

    def stop(self, epoch: int) -> None:
        """End all ranks of older attempts and wait until they are gone."""
        for node in self.nodes:
            node.order_stop(epoch)
        for node in self.nodes:
            node.pids(epoch)

    def step(self, rank: int, epoch: int) -> int:
        """How many steps the rank has finished in this attempt."""
        seen = progress.read(self.nodes[rank].root / f"run/progress-{rank}")
        return seen.step if seen is not None and seen.epoch == epoch else 0

    def newest_complete(self) -> tuple[int, int]:
        """(epoch, step) of the newest snapshot of which every rank has a committed shard."""
        held = []
        for rank, node in enumerate(self.nodes):
            seal_all(node.root / "mem")
            records = [json.loads(path.read_text()) for path in (node.root / "mem").glob(f"*-r{rank}.json")]
            held.append({(record["epoch"], record["step"]) for record in records})
        return max(set.intersection(*held))

    def ends(self, epoch: int, limit_s: float = 90.0) -> list[dict[str, Any]]:
        """Wait for all ranks to end."""
        return [node.exit_of(epoch, rank, limit_s) for rank, node in enumerate(self.nodes)]


def break_at(job: Job, epoch: int, rank: int, step: int) -> None:
    """Kill a rank with -9 as soon as it has finished `step` steps."""
    pid = job.nodes[rank].pids(epoch)[str(rank)]
    wait_until(lambda: job.step(rank, epoch) >= step, f"rank {rank} at step {step}", 90)
    os.kill(pid, signal.SIGKILL)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("result-*.json"))]


def any_step(first: int, last: int) -> int:
    """A step to break at: another in each run; pytest shows it when the test fails."""
    step = random.randint(first, last)
    sys.stdout.write(f"breaks at step {step}\n")
    return step
