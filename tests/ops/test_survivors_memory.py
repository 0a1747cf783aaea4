"""No step is lost with a node, however far storage lags behind: a survivor's or a partner's memory gives it back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reliability.supervisor.addresses import free_port
from tests.ops import sharded
from tests.ops.machines import JOIN_TOKEN, Machines, outcome_alone, weights
from tests.ops.running import Up, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

STEPS, RANKS = 200, 2
ALMOST_NOTHING = "1"
"""Bytes a second to storage: within this test the first snapshot gets there at most."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Two nodes for training and a standby."""
    settings = {"JOIN_TOKEN": JOIN_TOKEN, "VALIDATE_STANDBYS": "0"}
    up = Up(folder=tmp_path / "server", settings=settings)
    up.port, up.broker_port = free_port("127.0.0.1", 24700), free_port("127.0.0.1", 24750)
    machines = Machines(up=up.ready(), folder=tmp_path)
    try:
        for name in ("node-1", "node-2"):
            machines.join(name, role="training", **{"storage-bytes-per-s": ALMOST_NOTHING})
        machines.join("standby-1", role="standby", **{"storage-bytes-per-s": ALMOST_NOTHING})
        yield machines
    finally:
        machines.end()
        up.end()


def newest(machines: Machines, *tiers: str) -> int:
    """Return the newest step of which every rank has a copy on each of these tiers."""
    held = [set(machines.steps_with(RANKS, tier)) for tier in tiers]
    return max(set.intersection(*held), default=0)


def wait(machines: Machines, read: Callable[[], bool], *, limit_s: float, what: str) -> None:
    """Wait until something is so; a failure tells what happened until then."""
    try:
        until(read, limit_s=limit_s, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machines.story()}") from None


def lose_a_node(machines: Machines, *tiers: str) -> None:
    """Lose a node once some steps are on these tiers; the recovery must begin at the newest of them or later."""
    wait(machines, lambda: newest(machines, *tiers) >= 20, limit_s=120, what=f"steps on {tiers}")
    step = newest(machines, *tiers)
    machines.lose("node-2")
    wait(machines, lambda: machines.recovery().get("state") == "completed", limit_s=180, what="the recovery")
    assert machines.recovery()["restore_step"] >= step, machines.story()
    assert max(machines.steps_with(RANKS, "storage"), default=0) <= 5


def test_a_data_parallel_job_goes_on_from_a_survivors_memory_with_the_very_bits(machines: Machines) -> None:
    expected = outcome_alone(machines.folder / "alone", steps=STEPS, ranks=RANKS, port=free_port("127.0.0.1", 24600))
    out = machines.folder / "out"
    out.mkdir()
    program = ["train.py", "--steps", str(STEPS), "--step-sleep", "0.1", "--out", str(out)]
    job = machines.submit(program=program, master_port=free_port("127.0.0.1", 24620))
    lose_a_node(machines, "memory")
    wait(machines, lambda: machines.state(job) == "completed", limit_s=120, what="the job completes")
    assert weights(out, RANKS) == expected


def test_a_sharded_job_goes_on_from_a_partners_memory_with_the_very_bits(machines: Machines) -> None:
    out = machines.folder / "out"
    out.mkdir()
    program = [str(Path(sharded.__file__)), str(STEPS), str(out)]
    job = machines.submit(program=program, workdir=str(out), partner_copies=True)
    lose_a_node(machines, "ssd", "partner")
    wait(machines, lambda: machines.state(job) == "completed", limit_s=120, what="the job completes")
    expected = [sharded.piece(rank) for rank in range(RANKS)]
    for step in range(1, STEPS + 1):
        for state in expected:
            sharded.advance(state, step)
    assert weights(out, RANKS) == [sharded.digest(state) for state in expected]
