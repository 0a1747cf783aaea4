"""What the process runtime must do beyond the contract: live and die with its agent, and know its own processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reliability.errors import InvalidInput
from reliability.ports import ContainerInfo, ContainerState, EventKind, Runtime
from reliability.runtimes.choose import make_runtime
from reliability.runtimes.docker import DockerRuntime
from reliability.runtimes.process import ProcessRuntime
from tests.contract.places import FOREVER, Place
from tests.contract.test_runtimes import FAMILY, MEMBERS
from tests.testbed.commands import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
AGENT = """
import sys, time
from pathlib import Path
from reliability.ports import ContainerSpec
from reliability.runtimes.process import ProcessRuntime
runtime = ProcessRuntime(Path(sys.argv[1]))
argv = [sys.executable, "-c", sys.argv[2]]
runtime.start(ContainerSpec(name="sk-held", argv=argv, labels={"stepkeeper.job": "held"}))
time.sleep(600)
"""


@pytest.fixture
def agent(process_place: Place, tmp_path: Path):  # type: ignore[no-untyped-def]
    """A process that has started a family in the state folder of the place."""
    program = FAMILY.replace("FOLDER", repr(str(process_place.folder))).replace("MAIN", FOREVER)
    process = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path / "state"), program], cwd=REPOSITORY)
    for member in MEMBERS:
        process_place.await_file(f"{member}-ready")
    yield process
    process.kill()
    process.wait(10)


def test_everything_ends_when_the_agent_is_killed(process_place: Place, agent: "subprocess.Popen[bytes]") -> None:
    agent.kill()
    assert process_place.await_exit("sk-held").exit_code == 137
    assert not any(map(process_place.is_held, MEMBERS))


def test_another_agent_finds_and_stops_what_runs(process_place: Place, agent: "subprocess.Popen[bytes]") -> None:
    (found,) = process_place.runtime.list({"stepkeeper.job": "held"})
    assert found.state is ContainerState.RUNNING
    events = process_place.runtime.events({"stepkeeper.job": "held"})
    process_place.runtime.stop("sk-held", grace_s=0)
    assert not any(map(process_place.is_held, MEMBERS))
    assert next(events).kind is EventKind.DIE


def test_a_killed_shim_leaves_nothing_that_stop_does_not_find(
    process_place: Place, agent: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    record = json.loads((tmp_path / "state" / "sk-held" / "record.json").read_text())
    os.kill(record["shim"]["pid"], signal.SIGKILL)
    wait_until(lambda: process_place.runtime.inspect("sk-held").exit_code == 137, limit_s=5, what="the loss is seen")
    process_place.runtime.stop("sk-held", grace_s=0)
    assert not any(map(process_place.is_held, MEMBERS))


def test_a_container_outlives_the_thread_that_started_it(process_place: Place) -> None:
    spec = process_place.spec()
    thread = threading.Thread(target=process_place.runtime.start, args=(spec,))
    thread.start()
    thread.join(10)
    time.sleep(0.1)  # a death signal bound to the thread would have come by now
    assert process_place.runtime.inspect(spec.name).state is ContainerState.RUNNING


def test_a_process_id_given_to_somebody_else_is_not_taken_for_the_container(
    process_place: Place, tmp_path: Path
) -> None:
    spec = process_place.spec()
    process_place.runtime.start(spec)
    process_place.runtime.stop(spec.name, grace_s=0)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        kept = tmp_path / "state" / spec.name
        kept.mkdir()
        old = {"pid": bystander.pid, "began": "another boot:12"}
        (kept / "record.json").write_text(
            json.dumps({"name": spec.name, "instance": "0" * 32, "labels": {}, "shim": old, "main": old})
        )
        assert process_place.runtime.inspect(spec.name).state is ContainerState.EXITED
        process_place.runtime.stop(spec.name, grace_s=1)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(10)


def test_a_death_is_told_within_hundredths_of_a_second(process_place: Place) -> None:
    events = process_place.runtime.events({})
    delays = []
    for _ in range(5):
        spec = process_place.spec()
        process_place.runtime.start(spec)
        assert next(events).kind is EventKind.START
        began = time.monotonic()
        process_place.kill_main(spec.name)
        assert next(events).kind is EventKind.DIE
        delays.append(time.monotonic() - began)
    assert min(delays) < 0.1


def test_programs_are_those_beside_this_interpreter(process_place: Place) -> None:
    spec = process_place.spec(
        "import os; print(os.environ['PATH'].split(':')[0], os.environ['STEPKEEPER_PARENT_DEATH'])"
    )
    process_place.runtime.start(spec)
    process_place.await_exit(spec.name)
    assert process_place.runtime.logs(spec.name, tail=1).strip() == f"{Path(sys.executable).parent} 1"


def test_an_image_is_of_no_concern(process_place: Place) -> None:
    assert process_place.runtime.ensure_image("any/image:1") == ""


@pytest.mark.parametrize("name", ["", "../escape", "a/b", ".hidden"])
def test_a_name_that_is_no_plain_word_is_refused(process_place: Place, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        process_place.runtime.start(process_place.spec(name=name))


def test_the_longest_names_of_a_job_and_a_node_make_a_name_that_fits(process_place: Place) -> None:
    spec = process_place.spec(name=f"sk-{'j' * 80}-{'n' * 80}")
    process_place.runtime.start(spec)
    assert process_place.runtime.inspect(spec.name).state is ContainerState.RUNNING


def test_a_start_that_never_became_a_record_is_no_container(process_place: Place, tmp_path: Path) -> None:
    (tmp_path / "state" / "sk-half").mkdir()
    assert process_place.runtime.list({}) == []
    assert isinstance(process_place.runtime.start(process_place.spec(name="sk-half")), ContainerInfo)


def test_a_runtime_is_chosen_by_its_kind(tmp_path: Path) -> None:
    made: list[Runtime] = [make_runtime("docker"), make_runtime("process", state_dir=tmp_path)]
    assert [type(runtime) for runtime in made] == [DockerRuntime, ProcessRuntime]
    assert [runtime.kind for runtime in made] == ["docker", "process"]
    for kind, field in (("podman", "runtime"), ("process", "state_dir")):
        with pytest.raises(InvalidInput, match=field):
            make_runtime(kind)
