"""Guarded training runs on the test-bed and what they leave behind: weights and consumed samples."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.proof.cluster import Cluster, wait_for

OUT = "/out"
STEPS = {"numpy_lm": 400, "torch_ddp": 120}
"""Long enough that a run on a busy machine still goes on when it is hurt."""
STEP_SLEEP_S = 0.03
EVERY_STEPS = 20
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Outcome:
    """What a finished run left: digest of the weights by rank, and the consumed ids by rank and step."""

    weights: dict[int, str]
    samples: dict[int, dict[int, list[int]]]


@dataclass
class Run:
    """One run of an example as a guarded job."""

    cluster: Cluster
    job: str
    example: str
    ranks_per_node: int
    out: Path
    nodes: int = 3

    @property
    def ranks(self) -> range:
        return range(self.nodes * self.ranks_per_node)

    def node_of_slot(self, index: int) -> str:
        return self.cluster.placement(self.job)[index]

    def wait_for_restorable_step(self) -> None:
        """Wait until a step is complete on the storage tier and training is well past it."""
        query = (
            "select s.step step, count(*) n from reliability_snapshotcopy c "
            "join reliability_snapshot s on s.id = c.snapshot_id join reliability_job j on j.id = s.job_id "
            "where j.name = ? and c.tier = 'storage' group by s.id having n = ?"
        )
        rows = wait_for(
            f"{self.job} has a complete step on storage\n",
            lambda: self.cluster.rows(query, self.job, len(self.ranks)),
            limit_s=120,
        )
        self.cluster.wait_running_beyond(self.job, max(row["step"] for row in rows) + 3)

    def finish(self, *, limit_s: float = 180) -> None:
        self.cluster.wait_completed(self.job, limit_s=limit_s)

    def wait_until_all_ranks_wrote_weights(self, *, limit_s: float) -> None:
        wait_for("every rank wrote its weights", lambda: len(self.weights()) == len(self.ranks), limit_s=limit_s)

    def weights(self) -> dict[int, str]:
        found = {}
        for rank in self.ranks:
            path = self.out / f"result-{rank}.json"
            if path.exists():
                found[rank] = json.loads(path.read_text())["weights_sha256"]
        return found

    def samples(self) -> dict[int, dict[int, list[int]]]:
        """Return the consumed sample ids by rank and step, as the last attempt that did the step took them."""
        return {rank: self._consumed(self.out / f"rank-{rank}.jsonl") for rank in self.ranks}

    def _consumed(self, path: Path) -> dict[int, list[int]]:
        taken: dict[int, tuple[int, list[int]]] = {}
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # torn by a kill: that step was not finished
            if line["epoch"] >= taken.get(line["step"], (0, []))[0]:
                taken[line["step"]] = (line["epoch"], line["ids"])
        return {step: ids for step, (_, ids) in sorted(taken.items())}


@dataclass
class Runs:
    """Starts runs, and keeps the outcome of the uninterrupted one of each layout."""

    cluster: Cluster
    images: dict[str, str]
    folder: Path
    kept: dict[tuple[str, int], Outcome] = field(default_factory=dict)

    def spec(self, example: str, ranks_per_node: int, *, steps: int = 0) -> dict[str, Any]:
        """Return the description of a new job of an example."""
        job = f"{example.replace('_', '-')}-{ranks_per_node}-{next(_numbers)}"
        out = self.folder / job
        out.mkdir()
        program = ["/app/train.py", "--steps", str(steps or STEPS[example]), "--step-sleep", str(STEP_SLEEP_S)]
        return {
            "name": job,
            "nodes": 3,
            "ranks_per_node": ranks_per_node,
            "runtime": "docker",
            "image": self.images[example],
            "program": [*program, "--out", OUT, "--samples", OUT],
            "mode": "fork",
            "preload": ["torch"] if example == "torch_ddp" else ["numpy"],
            "every_steps": EVERY_STEPS,
            "approval": "automatic",
            "storage_dir": str(self.cluster.fleet.storage_dir),
            "env": {"GLOO_SOCKET_IFNAME": "eth0"},
            "mounts": [{"source": str(out), "target": OUT}],
        }

    def start(self, example: str, ranks_per_node: int, *, steps: int = 0, **fields: Any) -> Run:
        """Submit and start a job of an example; `fields` replace those of its description."""
        job = self.cluster.submit(self.spec(example, ranks_per_node, steps=steps) | fields)
        out = self.folder / job
        return Run(cluster=self.cluster, job=job, example=example, ranks_per_node=ranks_per_node, out=out)

    def uninterrupted(self, example: str, ranks_per_node: int) -> Outcome:
        """Return the outcome of a run that lost nothing; run once and kept for all tests."""
        layout = (example, ranks_per_node)
        if layout not in self.kept:
            run = self.start(example, ranks_per_node)
            run.finish()
            assert self.cluster.failovers(run.job) == [], self.cluster.story(run.job)
            assert len(run.weights()) == len(run.ranks)
            assert len(set(run.weights().values())) == 1
            self.kept[layout] = Outcome(weights=run.weights(), samples=run.samples())
        return self.kept[layout]
