"""Nodes of the process runtime beside one `manage.py up`: real agents with folders of their own, that can be lost."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ops.running import PROJECT, Up, environment, until

JOIN_TOKEN = "join-token-of-the-machines"
EXAMPLE = PROJECT / "examples" / "numpy_lm"
ADDRESS = "127.0.0.1"


@dataclass
class Machines:
    """Starts agents, loses them with all that lay on them, and says what the database knows."""

    up: Up
    folder: Path
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = Path(tempfile.mkdtemp(prefix="sk-machines-", dir="/dev/shm"))

    def join(self, name: str, *, role: str, **options: str) -> None:
        """Start an agent and wait until the server takes it for healthy."""
        home = self.folder / name
        home.mkdir()
        (home / "token").write_text(JOIN_TOKEN)
        given = {
            "server": f"http://127.0.0.1:{self.up.port}",
            "name": name,
            "address": ADDRESS,
            "runtime": "process",
            "data-dir": str(home / "agent"),
            "memory-dir": str(self.memory / name),
            "ssd-dir": str(home / "ssd"),
            "join-token-file": str(home / "token"),
            "role": role,
            **options,
        }
        argv = [sys.executable, "-m", "reliability.agent", *(f"--{key}={value}" for key, value in given.items())]
        with (home / "agent.log").open("ab") as log:
            self.agents[name] = subprocess.Popen(argv, cwd=PROJECT, env=environment(home), stdout=log, stderr=log)
        until(
            lambda: self.rows("select 1 from reliability_node where name = ?", name), limit_s=60, what=f"{name} joins"
        )

    def lose(self, name: str) -> None:
        """The node is gone, and so is what lay in its memory and on its SSD."""
        agent = self.agents.pop(name)
        agent.kill()
        agent.wait(10)
        shutil.rmtree(self.memory / name)
        shutil.rmtree(self.folder / name / "ssd")

    def submit(self, **given: Any) -> str:
        """Submit and start a run of the example; return the job's name."""
        spec = {
            "name": "lm",
            "nodes": 2,
            "runtime": "process",
            "mode": "fork",
            "preload": ["numpy"],
            "workdir": str(EXAMPLE),
            "storage_dir": str(self.folder / "storage"),
            "approval": "automatic",
            "every_steps": 5,
            "env": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            **given,
        }
        lines = [f"{name} = {_toml(value)}" for name, value in spec.items()]
        path = self.folder / f"{spec['name']}.toml"
        path.write_text("\n".join(lines))
        done = self.up.run("job", "submit", str(path), "--start")
        assert done.returncode == 0, done.stderr
        return str(spec["name"])

    def rows(self, query: str, *args: Any) -> list[dict[str, Any]]:
        with sqlite3.connect(f"file:{self.up.folder / 'stepkeeper.sqlite3'}?mode=ro", uri=True, timeout=5) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query, args)]

    def steps_with(self, ranks: int, tier: str) -> list[int]:
        """Return the steps of which so many ranks have a copy on a tier, rising."""
        found = self.rows(
            "select s.step step from reliability_snapshotcopy c join reliability_snapshot s on s.id = c.snapshot_id "
            "where c.tier = ? and c.state = 'committed' group by s.id having count(distinct c.rank) >= ? order by 1",
            tier,
            ranks,
        )
        return [row["step"] for row in found]

    def recovery(self) -> dict[str, Any]:
        """Return the newest recovery; nothing where there was none."""
        found = self.rows("select * from reliability_failover order by id desc limit 1")
        return found[0] if found else {}

    def state(self, job: str) -> str:
        return str(self.rows("select state from reliability_job where name = ?", job)[0]["state"])

    def story(self) -> str:
        """Return what happened, for a test that failed."""
        events = self.rows("select event, detail from reliability_failoverevent order by id")
        orders = self.rows(
            "select kind, state, result from reliability_orderrecord where kind in ('restore','peer_serve')"
        )
        jobs = self.rows("select name, state, state_reason, epoch from reliability_job")
        findings = self.rows("select code, evidence from reliability_finding order by id")
        told = [str(row)[:600] for row in (*jobs, *findings, *events, *orders)]
        logs = [path.read_text()[-1500:] for path in sorted(self.folder.glob("*/agent.log"))]
        return "\n".join([*told, *logs])

    def end(self) -> None:
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait(10)
        shutil.rmtree(self.memory, ignore_errors=True)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    return json.dumps(value)


def outcome_alone(out: Path, *, steps: int, ranks: int, port: int) -> list[str]:
    """Run the example without anybody guarding it and return the digests of the final weights by rank."""
    argv = [sys.executable, "train.py", "--steps", str(steps), "--out", str(out)]
    known = {key: value for key, value in os.environ.items() if not key.startswith("STEPKEEPER_")}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    shared = {**known, **path, "WORLD_SIZE": str(ranks), "MASTER_ADDR": ADDRESS, "MASTER_PORT": str(port)}
    out.mkdir()
    running = [subprocess.Popen(argv, cwd=EXAMPLE, env={**shared, "RANK": str(rank)}) for rank in range(ranks)]
    assert [process.wait(120) for process in running] == [0] * ranks
    return weights(out, ranks)


def weights(out: Path, ranks: int) -> list[str]:
    """Return the digests of the final weights by rank, as a run wrote them."""
    return [json.loads((out / f"result-{rank}.json").read_text())["weights_sha256"] for rank in range(ranks)]
