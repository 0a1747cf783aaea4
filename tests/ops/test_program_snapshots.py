"""A program that only knows its output folder, on the whole system: it goes on from its own files on another node."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.supervisor.addresses import free_port
from tests.agent.writer import trained
from tests.ops.machines import JOIN_TOKEN, Machines
from tests.ops.running import PROJECT, Up, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

WRITER = PROJECT / "tests" / "agent" / "writer.py"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    settings = {"JOIN_TOKEN": JOIN_TOKEN, "VALIDATE_STANDBYS": "0", "LONE_NODE_S": "12"}
    up = Up(folder=tmp_path / "server", settings=settings)
    machines = Machines(up=up.ready(), folder=tmp_path)
    try:
        yield machines
    finally:
        machines.end()
        up.end()


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_lost_node_costs_a_program_no_more_than_what_its_last_stored_files_lack(machines: Machines) -> None:
    machines.join("node-1", role="training")
    machines.join("standby-1", role="standby")
    history = machines.folder / "history"
    words = [sys.executable, str(WRITER), "--history", str(history), "--every", "50", "--steps", "800", "--rename"]
    job = machines.submit(
        nodes=1,
        ranks_per_node=1,
        mode="plain",
        program=["sh", "-c", f'exec {shlex.join(words)} --output-dir "$STEPKEEPER_SNAPSHOT_DIR"'],
        snapshot_folder={"sealed_by": "rename"},
        preload=[],
        lease_rule="keep",
        master_port=free_port("127.0.0.1", 24420),
    )
    stored = until(lambda: machines.steps_with(1, "storage"), limit_s=90, what=f"steps on storage\n{machines.story()}")
    machines.lose("node-1")
    until(lambda: machines.recovery().get("state") == "completed", limit_s=150, what=f"recovery\n{machines.story()}")
    until(lambda: machines.state(job) == "completed", limit_s=120, what=f"the job completes\n{machines.story()}")
    begun = [int(step) for word, step in lines(history) if word == "from"]
    restored = machines.recovery()["restore_step"]
    assert begun[0] == 0
    assert begun[-1] == restored >= max(stored), machines.story()
    assert machines.rows("select 1 from reliability_finding where code = 'store-conflict'") == []
    value = ""
    expected = {step: (value := trained(value, step)) for step in range(1, 801)}
    assert all(expected[int(step)] == said for step, said in lines(history) if step != "from")
    until(lambda: 800 in machines.steps_with(1, "storage"), limit_s=60, what="the last step on storage")
