"""The whole product while the clock of its machine is set by an hour, both ways: nobody is taken for lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.wallclock import Wall
from tests.integration.test_object_store import Watched
from tests.ops.running import Up, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall(tmp_path)
    for name, value in wall.environment.items():
        monkeypatch.setenv(name, value)
    return wall


@pytest.fixture
def demo(tmp_path: Path, wall: Wall) -> Iterator[Watched]:
    up = Up(folder=tmp_path / "demo", command=("demo",))
    try:
        up.ready()
        until(lambda: "Sign in" in up.output, limit_s=90, what=f"the demo is up; it printed:\n{up.output}")
        yield Watched(up)
    finally:
        up.end()


def test_training_and_storing_go_on_and_nobody_is_replaced(demo: Watched, wall: Wall) -> None:
    demo.write("update reliability_job set approval = 'automatic'")
    until(lambda: demo.stored_step() > 0, limit_s=90, what="a step is complete on storage")
    for ahead in (3600, -3600, 0):
        wall.set_ahead(ahead)
        step, stored = demo.step(), demo.stored_step()
        until(lambda step=step: demo.step() > step + 30, limit_s=60, what=f"training goes on at {ahead}")
        until(lambda stored=stored: demo.stored_step() > stored, limit_s=90, what=f"newer steps are stored at {ahead}")
        sick = demo.rows("select name, health from reliability_node where health not in ('healthy', 'unknown')")
        until(
            lambda: not demo.value("select count(*) from reliability_node where health != 'healthy'"),
            limit_s=60,
            what=f"all nodes are healthy at {ahead}, just now: {sick}",
        )
        assert demo.value("select count(*) from reliability_failover") == 0
        assert demo.value("select max(epoch) from reliability_job") == 1
