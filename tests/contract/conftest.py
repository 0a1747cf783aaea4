"""Both runtimes, each where it is at home: the Docker runtime on a host of the test-bed, the process runtime here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.runtimes.docker import DockerRuntime
from reliability.runtimes.process import ProcessRuntime
from tests.contract.places import Place, kill_process
from tests.testbed.commands import run
from tests.testbed.fleet import Fleet

HOST = "contract"


@pytest.fixture
def process_place(tmp_path: Path) -> Iterator[Place]:
    runtime = ProcessRuntime(tmp_path / "state", confirm_s=5.0)
    folder = tmp_path / "shared"
    folder.mkdir()
    yield Place(runtime=runtime, image="", folder=folder, run=run, kill_main=kill_process(runtime))
    for info in runtime.list({}):
        runtime.stop(info.name, grace_s=0)
    runtime.close()


@pytest.fixture
def docker_place(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Place]:
    image = request.getfixturevalue("base_image")
    host = fleet.up(HOST)[0]
    fleet.load(image, HOST)
    folder = host.data_dir / "shared"
    folder.mkdir()
    runtime = DockerRuntime(host.engine_url, call_limit_s=60.0, confirm_s=5.0)
    yield Place(
        runtime=runtime,
        image=image.reference,
        folder=folder,
        run=lambda argv: fleet.run(HOST, argv),
        kill_main=lambda name: fleet.kill(HOST, name),
    )
    runtime.close()
    fleet.reset()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.engine)])
def place(request: pytest.FixtureRequest) -> Place:
    """Each contract test runs once on every runtime."""
    made: Place = request.getfixturevalue(f"{request.param}_place")
    return made
