"""Does each fault of the test-bed really happen, and is everything gone afterwards?"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed import runs
from tests.testbed.commands import TestbedError, wait_until
from tests.testbed.fleet import Fleet
from tests.testbed.images import Image
from tests.testbed.ranks import pid_of_rank

pytestmark = pytest.mark.engine
REPOSITORY = Path(__file__).resolve().parents[2]
LISTENER = """
import socket
server, held = socket.create_server(("", 23500)), []
while True:
    held.append(server.accept()[0])
    held[-1].sendall(b"here")
"""
TICKER = "import sys, time\nwhile True:\n print('tick', flush=True)\n time.sleep(0.01)"
SENDER = "import socket\ns = socket.create_server(('', 23501))\nc = s.accept()[0]\nc.sendall(bytes(2 << 20))\nc.close()"


@pytest.fixture
def pair(clean_fleet: Fleet) -> Fleet:
    """A fleet with the hosts a and b on and as new."""
    clean_fleet.up("a", "b")
    return clean_fleet


def answers(fleet: Fleet, name: str) -> bool:
    """Whether a listener on the host answers this machine within a moment."""
    try:
        with socket.create_connection((fleet.host(name).address, 23500), timeout=0.5) as connection:
            return connection.recv(4) == b"here"
    except OSError:
        return False


def listen(fleet: Fleet, name: str) -> None:
    fleet.sh(name, [sys.executable, "-c", LISTENER])
    wait_until(lambda: answers(fleet, name), limit_s=10, what=f"{name} answers")


def test_hosts_have_names_processes_and_addresses_of_their_own(pair: Fleet) -> None:
    assert pair.run("a", ["hostname"]).strip() == "a"
    spaces = {pair.run(name, ["readlink", "/proc/1/ns/pid"]) for name in ("a", "b")}
    assert len(spaces) == 2
    assert pair.run("a", ["getent", "hosts", "b"]).split() == [pair.host("b").address, "b"]
    assert pair.host("a").docker.info()["Name"] == "a"


def test_a_host_reaches_the_control_address_and_another_host(pair: Fleet) -> None:
    listen(pair, "b")
    with socket.create_server((pair.control_address, 0)) as server:
        for address, port in ((pair.control_address, server.getsockname()[1]), (pair.host("b").address, 23500)):
            code = f"import socket; socket.create_connection(({address!r}, {port}), timeout=5)"
            pair.run("a", [sys.executable, "-c", code])


def test_a_program_in_a_host_is_ours_to_signal_and_to_wait_for(pair: Fleet) -> None:
    process = pair.sh("a", ["sleep", "60"], cwd="/tmp")
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    with pytest.raises(TestbedError, match="exit code 3"):
        pair.run("a", ["sh", "-c", "exit 3"])


def test_a_power_loss_takes_everything_but_the_disk(pair: Fleet, base_image: Image) -> None:
    pair.load(base_image, "a")
    host = pair.host("a")
    host.docker.containers.run(base_image.reference, ["sleep", "600"], name="sleeper", network_mode="host", detach=True)
    agent = pair.sh("a", ["sleep", "600"])
    pair.run("a", ["sh", "-c", f"touch {host.memory_dir}/gone {host.ssd_dir}/kept"])
    group = host.group
    pair.poweroff("a")
    assert agent.poll() is not None
    assert list(group.pids()) == []
    with pytest.raises(TestbedError, match="off"):
        pair.sh("a", ["true"])
    pair.boot("a")
    assert host.docker.api.inspect_container("sleeper")["State"]["Status"] == "exited"
    assert (host.ssd_dir / "kept").exists()
    assert list(host.outside(host.memory_dir).iterdir()) == []


def test_peers_of_a_host_without_power_hear_nothing_at_all(pair: Fleet) -> None:
    """A killed process would say goodbye; a dead machine does not, and so a survivor has to find out by itself."""
    listen(pair, "a")
    with socket.create_connection((pair.host("a").address, 23500), timeout=5) as connection:
        connection.recv(4)
        pair.poweroff("a")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert not answers(pair, "a")


@pytest.mark.parametrize(("break_it", "mend"), [(Fleet.cut, Fleet.uncut), (Fleet.drop, Fleet.undrop)])
def test_a_host_without_network_lives_on_unheard(
    pair: Fleet, break_it: Callable[[Fleet, str], None], mend: Callable[[Fleet, str], None]
) -> None:
    listen(pair, "a")
    break_it(pair, "a")
    assert not answers(pair, "a")
    assert pair.run("a", ["echo", "alive"]).strip() == "alive"
    assert pair.host("a").docker.ping()
    mend(pair, "a")
    wait_until(lambda: answers(pair, "a"), limit_s=10, what="a answers again")


def test_a_slowed_host_is_slow_and_then_fast_again(pair: Fleet) -> None:
    def seconds() -> float:
        pair.sh("a", [sys.executable, "-c", SENDER])
        address = (pair.host("a").address, 23501)
        found: list[socket.socket] = []
        wait_until(lambda: found or _connected(address, found), limit_s=10, what="the sender listens")
        began = time.monotonic()
        with found[0] as connection:
            while connection.recv(1 << 16):
                continue
        return time.monotonic() - began

    pair.slow("a", "10mbit")
    slow = seconds()
    pair.unslow("a")
    assert slow > 1.2
    assert seconds() < slow / 4


def _connected(address: tuple[str, int], found: list[socket.socket]) -> bool:
    try:
        found.append(socket.create_connection(address, timeout=5))
    except OSError:
        return False
    return True


def test_a_frozen_host_does_nothing_until_it_is_thawed(pair: Fleet) -> None:
    process = pair.sh("a", [sys.executable, "-c", TICKER], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as ticks:
        ticks.readline()
        pair.freeze("a")
        os.set_blocking(ticks.fileno(), False)
        while ticks.read(1 << 16):
            continue
        time.sleep(0.2)  # nothing happens here: that is what is tested
        assert not ticks.read(1 << 16)
        pair.thaw("a")
        wait_until(lambda: ticks.read(1 << 16), limit_s=5, what="ticks go on")


def test_a_frozen_host_can_lose_its_power(pair: Fleet) -> None:
    pair.freeze("a")
    pair.poweroff("a")
    pair.boot("a")
    assert pair.run("a", ["echo", "alive"]).strip() == "alive"


def test_a_killed_container_ends_with_137(pair: Fleet, base_image: Image) -> None:
    pair.load(base_image, "a")
    engine = pair.host("a").docker
    engine.containers.run(base_image.reference, ["sleep", "600"], name="victim", network_mode="host", detach=True)
    pair.kill("a", "victim")
    assert engine.api.wait("victim", timeout=10)["StatusCode"] == 137


def test_one_rank_is_found_by_its_environment_and_killed(pair: Fleet) -> None:
    ranks = [pair.sh("a", ["sleep", "600"], env={**os.environ, "RANK": str(rank)}) for rank in (0, 1)]
    wait_until(lambda: _has_rank(pair, 1), limit_s=5, what="rank 1 runs")
    pair.kill("a", rank=1)
    assert ranks[1].wait(10) == -signal.SIGKILL
    assert ranks[0].poll() is None
    with pytest.raises(TestbedError, match="no rank 7"):
        pair.kill("a", rank=7)


def _has_rank(fleet: Fleet, rank: int) -> bool:
    try:
        return pid_of_rank(fleet.host("a"), rank) > 0
    except TestbedError:
        return False


def test_a_forked_rank_in_a_container_is_found_by_what_its_launcher_says(pair: Fleet, base_image: Image) -> None:
    pair.load(base_image, "a")
    host = pair.host("a")
    job = host.memory_dir / "job"
    pair.run("a", ["mkdir", "-p", str(job / "ctl")])
    launcher = """
import json, os, time
pid = os.fork()
if pid:
    open('/stepkeeper/ctl/part', 'w').write(json.dumps({'epoch': 3, 'pids': {'5': pid}}))
    os.rename('/stepkeeper/ctl/part', '/stepkeeper/ctl/run-3.json')
    os.waitpid(pid, 0)
    raise SystemExit(9)
time.sleep(600)
"""
    host.docker.containers.run(
        base_image.reference, ["python", "-c", launcher], name="launcher", network_mode="host", detach=True,
        volumes={str(job): {"bind": "/stepkeeper", "mode": "rw"}},
    )  # fmt: skip
    wait_until(host.outside(job / "ctl" / "run-3.json").exists, limit_s=10, what="the launcher says where its rank is")
    pair.kill("a", rank=5)
    assert host.docker.api.wait("launcher", timeout=10)["StatusCode"] == 9


def test_a_reset_undoes_every_fault_and_removes_every_trace(pair: Fleet, base_image: Image) -> None:
    pair.load(base_image, "a", "b")
    host = pair.host("a")
    host.docker.containers.run(base_image.reference, ["sleep", "600"], network_mode="host", detach=True)
    program = pair.sh("a", ["sleep", "600"])
    pair.run("a", ["sh", "-c", f"touch {host.memory_dir}/x {host.ssd_dir}/x {host.data_dir}/x {pair.storage_dir}/x"])
    pair.cut("a")
    pair.slow("a", "1mbit")
    pair.drop("a")
    pair.freeze("a")
    pair.poweroff("b")
    pair.reset()
    assert program.poll() is not None
    assert host.docker.api.containers(all=True) == []
    for folder in (host.outside(host.memory_dir), host.ssd_dir, host.data_dir, pair.storage_dir):
        assert list(folder.iterdir()) == []
    for name in ("a", "b"):
        listen(pair, name)


def test_images_of_one_host_are_whole_on_every_host_that_adopts_them(pair: Fleet, base_image: Image) -> None:
    pair.load(base_image)
    said = {
        name: pair.host(name).docker.containers.run(
            base_image.reference, ["python", "-c", "import os, json; print(len(os.listdir('/usr/lib')))"],
            network_mode="host", remove=True,
        )
        for name in ("a", "b")
    }  # fmt: skip
    assert said["a"] == said["b"]
    pair.host("a").docker.images.remove(base_image.reference, force=True)
    assert base_image.is_on(pair.host("b"))
    pair.load(base_image, "a")
    assert base_image.is_on(pair.host("a"))


def test_what_a_killed_test_run_leaves_is_removed_without_touching_others(pair: Fleet) -> None:
    """The other run has a host that is on, cut and frozen when its process is killed with -9."""
    program = """
import json, time
from tests.testbed.fleet import Fleet
fleet = Fleet()
fleet.up("a")
fleet.cut("a")
fleet.freeze("a")
print(json.dumps({"number": fleet._run.number, "init": fleet.host("a").init}), flush=True)
time.sleep(600)
"""
    other = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert other.stdout is not None
    with other.stdout:
        told = json.loads(other.stdout.readline())
    run = runs.Run(told["number"])
    assert run.fabric.control_address != pair.control_address
    assert run.folder.exists()
    other.kill()
    other.wait(10)
    wait_until(lambda: not _traces(run), limit_s=20, what=f"traces of the killed run: {_traces(run)}")
    wait_until(lambda: not Path(f"/proc/{told['init']}").exists(), limit_s=10, what="the killed run's init is gone")
    assert pair.run("a", ["echo", "alive"]).strip() == "alive"


def _traces(run: runs.Run) -> list[Path]:
    places = [run.folder, runs.CLAIMS / str(run.number), Path(f"/sys/class/net/{run.fabric.prefix}")]
    groups = [group.path for group in run.groups()]
    namespaces = [*Path("/run/netns").glob(f"{run.fabric.prefix}-*")]
    return [path for path in places if path.exists()] + groups + namespaces
