"""What the Docker runtime must do beyond the common contract: images, limits, oom, and an engine that is lost."""

import io
import tarfile
import time
from pathlib import Path

import pytest

from reliability.errors import EngineUnreachable, FenceUnconfirmed, ImageMissing, InvalidInput, RuntimeFailure
from reliability.ports import LABEL_JOB, ContainerState, EventKind, Mount
from reliability.runtimes.docker import DockerRuntime
from tests.contract.conftest import HOST
from tests.contract.places import Place
from tests.contract.test_runtimes import GREEDY
from tests.contract.tls_front import TlsFront
from tests.testbed.fleet import Fleet
from tests.testbed.images import Image
from tests.testbed.registry import Registry

pytestmark = pytest.mark.engine
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def small_image(docker_place: Place, fleet: Fleet) -> str:
    """An image of one file, for tests that move it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    fleet.host(HOST).docker.api.import_image_from_data(content.getvalue(), repository="small", tag="1")
    return "small:1"


def test_a_tag_is_resolved_to_the_id_that_every_node_knows(
    docker_place: Place, fleet: Fleet, base_image: Image
) -> None:
    fleet.up("other")
    fleet.load(base_image, "other")
    here = docker_place.runtime.ensure_image(base_image.reference)
    there = DockerRuntime(fleet.host("other").engine_url).ensure_image(base_image.reference)
    assert here == there
    assert here.startswith("sha256:")
    assert docker_place.runtime.ensure_image(here) == here
    assert docker_place.runtime.start(docker_place.spec(image=here)).image_digest == here


def test_an_image_is_pulled_by_digest_when_it_is_absent(
    docker_place: Place, fleet: Fleet, small_image: str, registry: Registry
) -> None:
    reference = registry.push(fleet.host(HOST), small_image, "trainer")
    expected = docker_place.runtime.ensure_image(small_image)
    fleet.up("empty")
    runtime = DockerRuntime(fleet.host("empty").engine_url)
    assert fleet.host("empty").docker.images.list() == []
    assert runtime.ensure_image(reference) == expected
    began = time.monotonic()
    assert runtime.ensure_image(reference) == expected
    assert time.monotonic() - began < 10, "what is there is not pulled again"
    runtime.close()
    fleet.remove("empty")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (DIGEST, "an image id cannot be pulled"),
        ("nobody.invalid/trainer:1", "cannot be pulled"),
        (f"nobody.invalid/trainer@{DIGEST}", "cannot be pulled"),
        ("Not A Reference", "no image reference"),
        ("", "no image is named"),
    ],
)
def test_a_missing_image_is_said_by_name_and_with_a_hint(docker_place: Place, image: str, message: str) -> None:
    with pytest.raises(ImageMissing, match=message) as caught:
        docker_place.runtime.start(docker_place.spec(image=image))
    assert image in str(caught.value)
    assert caught.value.hint
    assert not caught.value.transient


def test_a_pull_that_hangs_ends_at_its_limit(
    docker_place: Place, fleet: Fleet, small_image: str, registry: Registry
) -> None:
    reference = registry.push(fleet.host(HOST), small_image, "hanging")
    fleet.up("cutoff")
    runtime = DockerRuntime(fleet.host("cutoff").engine_url, pull_limit_s=1)
    fleet.drop("cutoff")
    began = time.monotonic()
    with pytest.raises(ImageMissing, match="did not end within 1 s"):
        runtime.ensure_image(reference)
    assert time.monotonic() - began < 5
    fleet.remove("cutoff")


def test_a_container_killed_for_memory_is_told_from_one_that_was_killed(docker_place: Place) -> None:
    events = docker_place.runtime.events({LABEL_JOB: "greedy"})
    spec = docker_place.spec(GREEDY, memory_bytes=150 << 20, labels={LABEL_JOB: "greedy"})
    docker_place.runtime.start(spec)
    info = docker_place.await_exit(spec.name)
    assert (info.exit_code, info.oom_killed) == (137, True)
    assert {next(events).kind for _ in range(3)} == {EventKind.START, EventKind.OOM, EventKind.DIE}


def test_limits_names_and_resolver_reach_the_container(docker_place: Place) -> None:
    program = """
import os, socket, pathlib
stat = os.statvfs('/dev/shm')
resolver = pathlib.Path('/etc/resolv.conf').read_text()
print(stat.f_frsize * stat.f_blocks, socket.gethostbyname('peer'), 'nameserver 127.0.0.1' in resolver)
"""
    spec = docker_place.spec(program, shm_bytes=96 << 20, hosts={"peer": "10.1.2.3"}, cpus=0.5)
    docker_place.runtime.start(spec)
    docker_place.await_exit(spec.name)
    assert docker_place.runtime.logs(spec.name, tail=1).split() == [str(96 << 20), "10.1.2.3", "True"]


def test_containers_share_the_network_of_their_host(docker_place: Place, fleet: Fleet) -> None:
    spec = docker_place.spec("import os; print(sorted(os.listdir('/sys/class/net')), os.uname().nodename)")
    docker_place.runtime.start(spec)
    docker_place.await_exit(spec.name)
    assert docker_place.runtime.logs(spec.name, tail=1).strip() == f"['eth0', 'lo'] {HOST}"


def test_a_mount_whose_folder_is_absent_is_said_with_a_hint(docker_place: Place) -> None:
    spec = docker_place.spec(mounts=[Mount(source=Path("/no/such/folder"), target="/data")])
    with pytest.raises(RuntimeFailure, match="/no/such/folder") as caught:
        docker_place.runtime.start(spec)
    assert "folder" in caught.value.hint


def test_containers_that_stand_still_are_not_reported_as_stopped(docker_place: Place, fleet: Fleet) -> None:
    """The group above them is frozen: the engine thaws a container it kills, but not what is above it."""
    spec = docker_place.spec()
    docker_place.runtime.start(spec)
    group = fleet.host(HOST).group
    group.freeze("containers")
    try:
        with pytest.raises(FenceUnconfirmed, match=spec.name):
            docker_place.runtime.stop(spec.name, grace_s=0)
        assert docker_place.runtime.inspect(spec.name).state is ContainerState.RUNNING
    finally:
        group.thaw("containers")
    docker_place.runtime.stop(spec.name, grace_s=0)
    assert docker_place.runtime.list({}) == []


def test_a_killed_engine_ends_the_stream_and_is_unreachable_until_it_is_back(docker_place: Place, fleet: Fleet) -> None:
    events = docker_place.runtime.events({})
    fleet.kill_engine(HOST)
    assert [event.kind for event in events] == [EventKind.STREAM_ENDED]
    with pytest.raises(EngineUnreachable) as caught:
        docker_place.runtime.ping()
    assert caught.value.transient
    assert [event.kind for event in docker_place.runtime.events({})] == [EventKind.STREAM_ENDED]
    with pytest.raises(EngineUnreachable):
        docker_place.runtime.start(docker_place.spec())
    fleet.host(HOST).start_engine()
    docker_place.runtime.ping()


def test_a_power_loss_ends_the_stream(docker_place: Place, fleet: Fleet) -> None:
    docker_place.runtime.start(docker_place.spec())
    events = docker_place.runtime.events({LABEL_JOB: ""})
    fleet.poweroff(HOST)
    assert [event.kind for event in events][-1] is EventKind.STREAM_ENDED


def test_a_container_from_before_a_reboot_is_replaced(docker_place: Place, fleet: Fleet) -> None:
    spec = docker_place.spec()
    docker_place.runtime.start(spec)
    fleet.poweroff(HOST)
    fleet.boot(HOST)
    assert docker_place.runtime.inspect(spec.name).state is ContainerState.EXITED
    assert docker_place.runtime.start(spec).state is ContainerState.RUNNING


def test_no_call_waits_for_ever_on_an_engine_that_hangs(docker_place: Place, fleet: Fleet) -> None:
    runtime = DockerRuntime(fleet.host(HOST).engine_url, call_limit_s=0.5)
    runtime.ping()
    fleet.freeze(HOST)
    began = time.monotonic()
    for call in (runtime.ping, lambda: runtime.list({}), lambda: runtime.stop("any", grace_s=1)):
        with pytest.raises(EngineUnreachable):
            call()
    assert time.monotonic() - began < 5
    fleet.thaw(HOST)
    runtime.ping()


def test_the_certificate_bundle_of_the_environment_does_not_replace_that_of_the_engine(
    docker_place: Place, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TlsFront(fleet.host(HOST).socket, tmp_path) as front:
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.setenv(name, str(front.foreign_authority))
        runtime = DockerRuntime(front.url, tls_folder=front.client_folder)
        runtime.ping()
        assert runtime.list({}) == []
        runtime.close()


def test_an_engine_that_wants_a_certificate_refuses_a_client_without(
    docker_place: Place, fleet: Fleet, tmp_path: Path
) -> None:
    with TlsFront(fleet.host(HOST).socket, tmp_path) as front, pytest.raises(EngineUnreachable):
        DockerRuntime(front.url).ping()


def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="url"):
        DockerRuntime("/run/docker.sock")
    with pytest.raises(InvalidInput, match="tls_folder"):
        DockerRuntime("tcp://127.0.0.1:2376", tls_folder=tmp_path)
