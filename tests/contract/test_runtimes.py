"""What every runtime must do, run over each of them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reliability.errors import ContainerMissing, FenceUnconfirmed, RuntimeFailure
from reliability.ports import LABEL_JOB, LABEL_SLOT, ContainerState, EventKind
from tests.contract.places import FOREVER, Place
from tests.testbed.commands import wait_until

COUNTED = "open(FOLDER + '/starts', 'a').write('x')\n" + FOREVER
POLITE = """
import signal, sys, pathlib
def end(*_):
    pathlib.Path(FOLDER, 'asked').touch()
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
pathlib.Path(FOLDER, 'ready').touch()
while True: signal.pause()
"""
FAMILY = """
import fcntl, os, pathlib, signal, time
def hold(name):
    file = open(FOLDER + '/' + name, 'w')
    fcntl.flock(file, fcntl.LOCK_EX)
    pathlib.Path(FOLDER, name + '-ready').touch()
    while True: time.sleep(1)
if os.fork() == 0:
    hold('child')
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hold('stubborn')
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hold('escaped')
    os._exit(0)
MAIN
"""
MEMBERS = ("child", "stubborn", "escaped")
GREEDY = "blocks = []\nfor _ in range(40): blocks.append(bytearray(b'x' * (10 << 20)))\nprint('had it all')"


def test_starting_a_container_twice_returns_the_running_one(place: Place) -> None:
    spec = place.spec(COUNTED)
    first = place.runtime.start(spec)
    second = place.runtime.start(spec)
    assert first.state is second.state is ContainerState.RUNNING
    assert first.pid == second.pid > 0
    assert place.await_file("starts", holds="x").read_text() == "x"


def test_two_callers_at_once_start_one_container(place: Place) -> None:
    spec = place.spec(COUNTED)
    together = threading.Barrier(4)

    def start() -> int:
        together.wait(30)
        return place.runtime.start(spec).pid

    with ThreadPoolExecutor(4) as pool:
        pids = {done.result(60) for done in [pool.submit(start) for _ in range(4)]}
    assert len(pids) == 1
    assert place.await_file("starts", holds="x").read_text() == "x"
    assert len(place.runtime.list({LABEL_JOB: "contract"})) == 1


def test_a_dead_container_of_that_name_is_replaced(place: Place) -> None:
    dead = place.spec("raise SystemExit(3)")
    place.runtime.start(dead)
    assert place.await_exit(dead.name).exit_code == 3
    alive = place.runtime.start(place.spec(name=dead.name))
    assert alive.state is ContainerState.RUNNING
    assert alive.exit_code is None


def test_stopping_gives_the_program_time_to_end_and_removes_it(place: Place) -> None:
    spec = place.spec(POLITE)
    place.runtime.start(spec)
    place.await_file("ready")
    place.runtime.stop(spec.name, grace_s=10)
    assert (place.folder / "asked").exists()
    with pytest.raises(ContainerMissing):
        place.runtime.inspect(spec.name)


def test_stopping_again_or_what_was_never_there_is_no_error(place: Place) -> None:
    spec = place.spec()
    place.runtime.start(spec)
    for _ in range(2):
        place.runtime.stop(spec.name, grace_s=0)
    place.runtime.stop("sk-never-there", grace_s=1)


@pytest.mark.parametrize("grace_s", [0, 0.3])
def test_stopping_ends_every_descendant_also_a_stubborn_and_an_escaped_one(place: Place, grace_s: float) -> None:
    spec = place.spec(FAMILY.replace("MAIN", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER))
    place.runtime.start(spec)
    for member in MEMBERS:
        place.await_file(f"{member}-ready")
        assert place.is_held(member)
    place.runtime.stop(spec.name, grace_s=grace_s)
    assert [member for member in MEMBERS if place.is_held(member)] == []


def test_the_end_of_the_main_process_ends_every_descendant(place: Place) -> None:
    ends = "\n".join(f"while not os.path.exists(FOLDER + '/{name}-ready'): time.sleep(0.01)" for name in MEMBERS)
    spec = place.spec(FAMILY.replace("MAIN", ends + "\nos._exit(4)"))
    place.runtime.start(spec)
    assert place.await_exit(spec.name).exit_code == 4
    assert [member for member in MEMBERS if place.is_held(member)] == []


def test_a_container_is_found_by_its_labels(place: Place) -> None:
    first = place.spec(labels={LABEL_JOB: "one", LABEL_SLOT: "0"})
    second = place.spec(labels={LABEL_JOB: "two", LABEL_SLOT: "warm"})
    for spec in (first, second):
        place.runtime.start(spec)

    def named(labels: dict[str, str]) -> set[str]:
        return {info.name for info in place.runtime.list(labels)}

    assert named({LABEL_JOB: "one"}) == {first.name}
    assert named({LABEL_JOB: ""}) == {first.name, second.name}
    assert named({LABEL_JOB: "one", LABEL_SLOT: "warm"}) == set()
    assert dict(place.runtime.inspect(first.name).labels).items() >= {LABEL_JOB: "one", LABEL_SLOT: "0"}.items()


def test_an_ended_container_stays_listed_with_its_exit_code(place: Place) -> None:
    spec = place.spec("raise SystemExit(7)")
    place.runtime.start(spec)
    place.await_exit(spec.name)
    (info,) = place.runtime.list({LABEL_JOB: "contract"})
    assert (info.state, info.exit_code, info.pid, info.oom_killed) == (ContainerState.EXITED, 7, 0, False)


def test_a_kill_shows_as_128_plus_the_signal(place: Place) -> None:
    spec = place.spec()
    place.runtime.start(spec)
    place.kill_main(spec.name)
    assert place.await_exit(spec.name).exit_code == 137


def test_what_is_not_there_cannot_be_looked_at(place: Place) -> None:
    with pytest.raises(ContainerMissing):
        place.runtime.inspect("sk-never-there")
    with pytest.raises(ContainerMissing):
        place.runtime.logs("sk-never-there", tail=5)


def test_a_program_that_does_not_exist_is_said_with_a_hint_and_leaves_nothing(place: Place) -> None:
    spec = place.spec(argv=["/no/such/program"])
    with pytest.raises(RuntimeFailure, match="/no/such/program") as caught:
        place.runtime.start(spec)
    assert "program" in caught.value.hint
    assert place.runtime.list({LABEL_JOB: "contract"}) == []


def test_the_environment_and_the_working_folder_are_those_of_the_spec(place: Place) -> None:
    program = "import os; print(os.environ['GREETING'], os.getcwd(), os.environ.get('STEPKEEPER_JOIN_TOKEN'))"
    spec = place.spec(program, env={"GREETING": "good day"}, workdir=str(place.folder))
    place.runtime.start(spec)
    place.await_exit(spec.name)
    assert place.runtime.logs(spec.name, tail=1).strip() == f"good day {place.folder} None"


def test_logs_are_the_last_lines_of_both_streams(place: Place) -> None:
    program = (
        "import sys\nfor i in range(50): print(f'line {i}')\nsys.stdout.flush(); sys.stderr.write('a complaint\\n')"
    )
    spec = place.spec(program)
    place.runtime.start(spec)
    place.await_exit(spec.name)
    said = place.runtime.logs(spec.name, tail=3).splitlines()
    assert len(said) == 3
    assert set(said) <= {"line 48", "line 49", "line 47", "a complaint"}
    assert "a complaint" in place.runtime.logs(spec.name, tail=51)
    assert place.runtime.logs(spec.name, tail=0) == ""


def test_what_a_container_wrote_to_a_mount_outlives_it(place: Place) -> None:
    spec = place.spec("open(FOLDER + '/kept', 'w').write('state')\n" + FOREVER)
    place.runtime.start(spec)
    place.await_file("kept")
    place.runtime.stop(spec.name, grace_s=0)
    again = place.spec("print(open(FOLDER + '/kept').read())")
    place.runtime.start(again)
    place.await_exit(again.name)
    assert place.runtime.logs(again.name, tail=1).strip() == "state"


def test_the_memory_limit_ends_a_greedy_program(place: Place) -> None:
    spec = place.spec(GREEDY, memory_bytes=150 << 20)
    place.runtime.start(spec)
    assert place.await_exit(spec.name).exit_code != 0
    assert "had it all" not in place.runtime.logs(spec.name, tail=5)


def test_events_tell_of_starts_and_deaths_of_the_labelled_containers_only(place: Place) -> None:
    events = place.runtime.events({LABEL_JOB: "followed"})
    other = place.spec("raise SystemExit(1)")
    place.runtime.start(other)
    place.await_exit(other.name)
    spec = place.spec("raise SystemExit(9)", labels={LABEL_JOB: "followed"})
    place.runtime.start(spec)
    started, died = next(events), next(events)
    assert (started.kind, started.name) == (EventKind.START, spec.name)
    assert (died.kind, died.name, died.exit_code) == (EventKind.DIE, spec.name, 9)
    assert died.labels[LABEL_JOB] == "followed"


def test_the_death_of_a_container_that_ran_before_the_subscription_is_told(place: Place) -> None:
    spec = place.spec()
    place.runtime.start(spec)
    events = place.runtime.events({LABEL_JOB: "contract"})
    place.runtime.stop(spec.name, grace_s=0)
    died = next(events)
    assert (died.kind, died.name, died.exit_code) == (EventKind.DIE, spec.name, 137)


def test_a_replaced_container_is_told_as_death_and_start(place: Place) -> None:
    events = place.runtime.events({LABEL_JOB: "contract"})
    spec = place.spec()
    place.runtime.start(spec)
    place.kill_main(spec.name)
    place.await_exit(spec.name)
    place.runtime.start(replace(spec))
    assert [next(events).kind for _ in range(3)] == [EventKind.START, EventKind.DIE, EventKind.START]


def test_a_closed_stream_ends_with_one_last_event(place: Place) -> None:
    events = place.runtime.events({})
    seen: list[EventKind] = []
    reader = threading.Thread(target=lambda: seen.extend(event.kind for event in events))
    reader.start()
    place.runtime.close()
    reader.join(10)
    assert not reader.is_alive()
    assert seen == [EventKind.STREAM_ENDED]


def test_the_runtime_answers_a_ping(place: Place) -> None:
    place.runtime.ping()


def test_a_process_the_kernel_cannot_end_is_not_reported_as_stopped(place: Place) -> None:
    """Blocked in the kernel on a frozen file system, as a rank is on a storage or a device that no longer answers."""
    disk, image = place.folder / "disk", place.folder / "disk.img"
    disk.mkdir()
    place.run(["sh", "-c", f"truncate -s 8M {image} && mkfs.ext4 -q {image} && mount -o loop {image} {disk}"])
    program = """
import pathlib, time
pathlib.Path(FOLDER, 'ready').touch()
while not pathlib.Path(FOLDER, 'frozen').exists(): time.sleep(0.01)
open(FOLDER + '/status', 'w').write(open('/proc/self/stat').read())
open(FOLDER + '/disk/file', 'w').write('x')
"""
    spec = place.spec(program)
    try:
        place.runtime.start(spec)
        place.await_file("ready")
        place.run(["fsfreeze", "-f", str(disk)])
        (place.folder / "frozen").touch()
        pid = place.runtime.inspect(spec.name).pid
        wait_until(
            lambda: " D " in place.run(["cat", f"/proc/{pid}/stat"]), limit_s=10, what="the program hangs in the kernel"
        )
        with pytest.raises(FenceUnconfirmed, match=spec.name):
            place.runtime.stop(spec.name, grace_s=0.1)
        assert place.runtime.inspect(spec.name).state is ContainerState.RUNNING
    finally:
        place.run(["fsfreeze", "-u", str(disk)])
        place.runtime.stop(spec.name, grace_s=0)
        place.run(["umount", str(disk)])
    with pytest.raises(ContainerMissing):
        place.runtime.inspect(spec.name)
