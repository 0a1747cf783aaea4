"""The web process stands still for longer than the silence limit: real agents train on, and nobody is blamed."""

import os
import signal
import time
from pathlib import Path

import pytest

from reliability.supervisor.addresses import free_port
from tests.ops.machines import JOIN_TOKEN, Machines
from tests.ops.running import Up, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]
AWAY_S = float(os.environ.get("STEPKEEPER_AWAY_S", "15"))
"""How long it stands still; 70 was run once with the default limits."""
SCALED = {"HEARTBEAT_S": "0.5", "LEASE_S": "2", "SILENCE_S": "3.5"} if AWAY_S < 60 else {}

ROOMY = {"WARN_FULL_WITHIN_S": "0", "WARN_FREE_SHARE": "0"}
OF_NODES = (
    "select code from reliability_{} where code in ('agent-silent', 'node-lost', 'container-died', 'no-progress')"
)


def steps(machines: Machines) -> list[int]:
    return [row["step"] or 0 for row in machines.rows("select step from reliability_rank order by rank")]


def test_a_web_process_that_is_stopped_for_long_is_one_incident_of_the_control_plane(tmp_path: Path) -> None:
    up = Up(
        folder=tmp_path / "server", settings={"JOIN_TOKEN": JOIN_TOKEN, "VALIDATE_STANDBYS": "0", **ROOMY, **SCALED}
    )
    up.port, up.broker_port = free_port("127.0.0.1", 24900), free_port("127.0.0.1", 24950)
    machines = Machines(up=up.start(), folder=tmp_path)
    try:
        until(lambda: "Stepkeeper is up" in up.output, limit_s=180, what=f"up is ready\n{up.output}")
        for name in ("node-1", "node-2"):
            machines.join(name, role="training")
        machines.submit(program=["train.py", "--steps", "1000000", "--step-sleep", "0.3"], every_steps=20)
        until(lambda: min(steps(machines), default=0) > 5, limit_s=150, what=f"training\n{machines.story()}")
        web = int(up.pid_of("web") or 0)
        os.kill(web, signal.SIGSTOP)
        stopped_at, before = time.monotonic(), steps(machines)
        until(lambda: time.monotonic() - stopped_at > AWAY_S, limit_s=AWAY_S + 30, what="standing still")
        os.kill(web, signal.SIGCONT)
        closed = "select 1 from reliability_incident where code = 'control-plane' and closed_at is not null"
        until(lambda: machines.rows(closed), limit_s=90, what=f"the incident ends\n{machines.story()}")
        until(lambda: min(steps(machines)) > max(before), limit_s=60, what="steps that were made meanwhile are known")
        own = machines.rows("select summary from reliability_incident where code = 'control-plane'")
        assert len(own) == 1, own
        assert machines.rows(OF_NODES.format("incident")) == []
        assert machines.rows(OF_NODES.format("finding")) == []
        assert machines.recovery() == {}
        assert machines.rows("select state, epoch from reliability_job") == [{"state": "running", "epoch": 1}]
    finally:
        machines.end()
        up.end()
