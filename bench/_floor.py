"""How fast can a rank move at all? Kill, detect, copy, fork in a warm container, meet, load, first step: by hand.

The trainer is the same program as in a guarded run; what is missing is all that judges, decides, fences and proves.
"""

import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench._watch import all_past_first_step, newest_common_step
from tests.testbed.fleet import Fleet
from tests.testbed.host import Host

ZYGOTE = Path(__file__).with_name("_zygote.py")
PORT = 28500
NAME = "floor"


@dataclass
class Floor:
    """A job run by hand on hosts of the test-bed: one rank each on the first three, the fourth waits."""

    fleet: Fleet
    image: str
    preload: Sequence[str]
    argv: Sequence[str]
    hosts: Sequence[str]
    standby: str
    env: Mapping[str, str] = field(default_factory=dict)

    def folder(self, name: str) -> Path:
        """Return the job's folder in the memory tier of a host, as seen from here."""
        host = self.fleet.host(name)
        return host.outside(host.memory_dir) / NAME

    def container(self, name: str) -> str:
        """Start a warm container on a host; returns its id."""
        host: Host = self.fleet.host(name)
        for part in ("ctl", "run", "mem", "log", "floor"):
            (self.folder(name) / part).mkdir(parents=True, exist_ok=True)
        plan = {"version": 1, "plan": [{"from_step": 0, "every_steps": 10}]}
        (self.folder(name) / "ctl" / "period.json").write_text(json.dumps(plan))
        made = host.docker.containers.run(
            self.image, ["python3", "/zygote.py", *self.preload], detach=True, network_mode="host", dns=["127.0.0.1"],
            environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            volumes={str(ZYGOTE): {"bind": "/zygote.py", "mode": "ro"},
                     str(host.memory_dir / NAME): {"bind": "/stepkeeper", "mode": "rw"}},
        )  # fmt: skip
        return str(made.id)

    def ready(self, name: str) -> bool:
        """Whether the container of a host has imported everything."""
        return (self.folder(name) / "floor" / "ready").exists()

    def order(self, name: str, rank: int, attempt: int, restore: str = "") -> None:
        """Have the container of a host run a rank."""
        env = {
            **self.env, "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.fleet.host(self.hosts[0]).address, "MASTER_PORT": str(PORT + attempt),
            "STEPKEEPER_DIR": "/stepkeeper", "STEPKEEPER_JOB": NAME, "STEPKEEPER_EPOCH": str(attempt),
        }  # fmt: skip
        if restore:
            env["STEPKEEPER_RESTORE"] = f"/stepkeeper/mem/{restore}-r{rank}.json"
        path = self.folder(name) / "floor" / f"{attempt}.part"
        path.write_text(json.dumps({"env": env, "argv": list(self.argv)}))
        path.rename(path.with_suffix(".json"))

    def measure(self, *, move: bool, limit_s: float = 120) -> float:
        """Kill the third rank's container; return the seconds until all ranks are past their first step again.

        `move`: the rank goes on in the warm container of the standby; otherwise in a new container on its own host.
        """
        self.fleet.reset()
        places = list(self.hosts)
        ids = {name: self.container(name) for name in (*places, self.standby)}
        wait(lambda: all(self.ready(name) for name in ids), limit_s)
        for rank, name in enumerate(places):
            self.order(name, rank, 1)
        folders = [self.folder(name) for name in places]
        wait(lambda: newest_common_step(folders, 1) >= 20, limit_s)
        lost = places[2]
        target = self.standby if move else lost
        step = newest_common_step(folders, 1)
        shard = f"e1-s{step}-r2"
        stored = self.fleet.storage_dir / NAME
        stored.mkdir(exist_ok=True)
        for suffix in (".snap", ".json"):
            shutil.copy(self.folder(lost) / "mem" / (shard + suffix), stored)
        died = threading.Event()
        engine = self.fleet.host(lost).docker
        threading.Thread(target=lambda: (engine.containers.get(ids[lost]).wait(), died.set()), daemon=True).start()
        began = time.monotonic()
        engine.api.kill(ids[lost])
        assert died.wait(limit_s)
        engine.api.remove_container(ids[lost], force=True)
        if move:
            for suffix in (".snap", ".json"):
                shutil.copy(stored / (shard + suffix), self.folder(target) / "mem")
        else:
            (self.folder(lost) / "floor" / "ready").unlink()
            (self.folder(lost) / "floor" / "1.json").unlink()
            self.container(lost)
        places[2] = target
        for rank, name in enumerate(places):
            self.order(name, rank, 2, f"e1-s{step}")
        folders = [self.folder(name) for name in places]
        wait(lambda: all_past_first_step(dict(enumerate(folders)), 1), limit_s, 0.001)
        return time.monotonic() - began


def wait(condition: Any, limit_s: float, every_s: float = 0.01) -> None:
    """Wait for a condition; raises TimeoutError."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit_s} s")
        time.sleep(every_s)
