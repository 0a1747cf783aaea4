"""Trainers whose state says at every place which step it is of, so that half a snapshot, or a mixed one, shows."""

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reliability import trainer
from reliability.agent import sealing
from reliability.agent.mover import run
from reliability.agent.ssd_mover import SsdMover
from reliability.errors import TierError
from reliability.tiers.shards import Shard, parse
from reliability.trainer.reading import load

JOB = "lm"
WORDS = 100_000


class StampedState:
    """Arrays of several sizes, all full of the number of the step."""

    def __init__(self) -> None:
        self.arrays = {f"w{number}": np.zeros(WORDS * (1 + 3 * number)) for number in range(3)}
        self.arrays["small"] = np.zeros(7)
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.arrays, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]

    def advance(self) -> None:
        self.step += 1
        for array in self.arrays.values():
            array.fill(self.step)


def step_of(state: dict[str, Any]) -> int:
    """Return the step a loaded state is of; fails when it is not of one step throughout."""
    step = int(state["state"]["step"])
    for name, array in state["state"].items():
        assert np.all(array == step), (name, step, np.unique(array))
    return step


def make_job(root: Path) -> None:
    for part in ("ctl", "mem", "run", "log"):
        (root / part).mkdir(parents=True)
    plan = {"version": 1, "plan": [{"from_step": 0, "every_steps": 1}]}
    (root / "ctl" / "period.json").write_text(json.dumps(plan))


def train(root: Path, epoch: int, restore: Shard | None, mode: str) -> None:
    """Train and save at every step until killed."""
    environment = {
        "STEPKEEPER_DIR": str(root),
        "STEPKEEPER_JOB": JOB,
        "STEPKEEPER_EPOCH": str(epoch),
        "STEPKEEPER_SAVE_MODE": mode,
        "STEPKEEPER_RESTORE": str(root / "mem" / f"{restore.flat_key}.json") if restore else "",
    }
    guarded, state = trainer.attach(environment), StampedState()
    guarded.register("state", state)
    started = guarded.restore()
    assert state.step == started
    for step in itertools.count(started + 1):
        for array in state.arrays.values():
            array.sum()
        guarded.before_update()
        state.advance()
        guarded.step(step)


def move(folder: Path, told: int) -> None:
    """Run process 2 until killed; what it tells goes to the handle `told`."""
    os.dup2(told, 1)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    never, _open = os.pipe()
    os.dup2(never, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    folders = [f"--{name}-dir={folder / name}" for name in ("jobs", "memory", "ssd")]
    run(SsdMover, ["--node=n", f"--parent={os.getppid()}", *folders])


class Child:
    """A forked process that is killed without a word."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                work()
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(3)

    def alive(self) -> bool:
        return os.waitpid(self.pid, os.WNOHANG) == (0, 0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        _pid, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status), f"it ended by itself: {os.waitstatus_to_exitcode(status)}"


class Hints:
    """The agent's ear: which steps did the trainer say were taken?"""

    def __init__(self, root: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(root / "run" / "agent.sock"))
        self.problems: list[dict[str, Any]] = []

    def newest(self, wait_s: float, *, until_one: bool = False) -> int:
        """Return the newest step told, listening for `wait_s` seconds, or until there is one; 0 when there was none."""
        found, end = 0, time.monotonic() + wait_s
        while select.select([self._socket], [], [], max(end - time.monotonic(), 0.0))[0]:
            hint = json.loads(self._socket.recv(65536))
            if hint["t"] == "snapshot_problem":
                self.problems.append(hint)
            found = max(found, hint["step"] if hint["t"] == "snapshot" else 0)
            if (wait_s and time.monotonic() > end) or (until_one and found):
                break
        return found

    def close(self) -> None:
        self._socket.close()


def seal_left(memory: Path) -> None:
    """What the agent does once a rank has ended."""
    for _shard, path in sealing.unsealed(memory):
        with contextlib.suppress(TierError):
            sealing.seal(path, job=JOB)


def whole(folder: Path) -> dict[Shard, int]:
    """Return all committed shards of a folder and the step each is of, every byte checked."""
    found = {}
    for record in folder.glob("*.json"):
        shard = parse(record.stem)
        assert shard is not None
        if record.with_suffix(".snap").exists():
            found[shard] = step_of(load(record, rank=shard.rank)[1])
            assert found[shard] == shard.step
    return found
