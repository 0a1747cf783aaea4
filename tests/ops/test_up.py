"""The supervisor, looked at from outside: real processes, killed for real."""

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
import redis

from tests.ops.running import Up, until

pytestmark = pytest.mark.broker
CHILDREN = ("broker", "web", "controller", "beat")


def stat_ppid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_every_child_that_is_killed_runs_again_and_the_others_are_left_alone(up: Up) -> None:
    up.ready()
    for name in CHILDREN:
        before = {child: up.pid_of(child) for child in CHILDREN}
        os.kill(before[name], signal.SIGKILL)
        until(
            lambda name=name, before=before: up.pid_of(name) not in (None, before[name]),
            limit_s=15,
            what=f"{name} runs again",
        )
        after = {child: up.pid_of(child) for child in CHILDREN}
        assert {child for child in CHILDREN if after[child] != before[child]} == {name}
    assert up.exit_code is None


def test_killing_the_supervisor_leaves_no_process_behind(up: Up) -> None:
    up.ready()
    descendants = up.descendants()
    assert len(descendants.alive()) == len(CHILDREN)
    up.signal(signal.SIGKILL)
    up.wait()
    until(lambda: not descendants.alive(), limit_s=5, what="all its processes are gone")


def test_it_can_be_started_at_once_after_it_was_killed(up: Up) -> None:
    up.ready()
    up.signal(signal.SIGKILL)
    up.wait()
    up.ready()
    assert up.pid_of("web")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_broker_last_and_exits_with_0(up: Up, signum: int) -> None:
    up.ready()
    descendants, pids = up.descendants(), {name: up.pid_of(name) for name in CHILDREN}
    ended: list[str] = []
    up.signal(signum)
    deadline = time.monotonic() + 60
    while len(ended) < len(CHILDREN) and time.monotonic() < deadline:
        ended += [name for name, pid in pids.items() if name not in ended and not Path(f"/proc/{pid}").exists()]
        time.sleep(0.002)
    assert len(ended) == len(CHILDREN)
    assert ended[-1] == "broker"
    assert up.wait() == 0
    assert descendants.alive() == set()
    assert not (up.folder / "up.json").exists()


def test_a_terminals_interrupt_reaches_only_the_supervisor(up: Up) -> None:
    up.ready()
    assert up.process is not None
    for name in CHILDREN:
        pid = up.pid_of(name)
        assert stat_ppid(pid) == up.process.pid
        assert os.getpgid(pid) == pid


def test_a_second_one_on_the_same_folder_is_refused_and_names_the_first(up: Up) -> None:
    up.ready()
    second = up.run("up")
    assert second.returncode == 1
    assert f"Process {up.process.pid} already runs on {up.folder}" in second.stderr
    assert "STEPKEEPER_DATA_DIR" in second.stderr
    assert up.pid_of("web")


def test_a_taken_port_is_told_before_anything_starts(up: Up, tmp_path: Path) -> None:
    up.ready()
    other = Up(
        folder=tmp_path / "other", settings={"LISTEN": f"127.0.0.1:{up.port}", "BROKER_PORT": str(up.broker_port + 1)}
    )
    refused = other.run("up")
    assert refused.returncode == 1
    assert f"web: cannot listen on 127.0.0.1:{up.port}" in refused.stderr
    assert "STEPKEEPER_LISTEN" in refused.stderr
    assert not (other.folder / "broker").exists()


def test_rows_and_messages_survive_a_restart(up: Up) -> None:
    up.ready()
    with redis.Redis(port=up.broker_port) as broker:
        broker.rpush("kept", *range(1000))
        until(lambda: broker.info("persistence")["aof_pending_bio_fsync"] == 0, limit_s=5, what="synced")
    assert (
        up.run(
            "shell", "-c", "from django.contrib.auth.models import User; User.objects.create(username='kept')"
        ).returncode
        == 0
    )
    up.signal(signal.SIGTERM)
    assert up.wait() == 0
    up.ready()
    with redis.Redis(port=up.broker_port) as broker:
        assert broker.llen("kept") == 1000
    with sqlite3.connect(up.folder / "stepkeeper.sqlite3") as database:
        assert database.execute("select username from auth_user").fetchall() == [("kept",)]


def test_messages_survive_the_kill_of_the_broker(up: Up) -> None:
    up.ready()
    pid = up.pid_of("broker")
    with redis.Redis(port=up.broker_port) as broker:
        broker.set("kept", "yes")
    time.sleep(1.2)  # the file is synced once a second
    os.kill(pid, signal.SIGKILL)
    until(lambda: up.pid_of("broker") not in (None, pid), limit_s=10, what="the broker runs again")
    with redis.Redis(port=up.broker_port) as broker:
        until(lambda: answers(broker), limit_s=10, what="the broker answers")
        assert broker.get("kept") == b"yes"


def answers(broker: redis.Redis) -> bool:
    try:
        return bool(broker.ping())
    except redis.RedisError:
        return False
