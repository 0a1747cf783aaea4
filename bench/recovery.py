"""How long from a fault until every rank is past its first step again, beside the bare floor of the same run?

The floor does by hand, on the same hosts and with the same trainer, what cannot be left out: kill, detect, copy the
snapshot, fork in a warm container (or start a new one), meet, load, first step. Both are read from the ranks' own
progress records.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._floor import Floor
from bench._watch import all_past_first_step
from bench.figures import Figure
from tests.proof.cluster import Cluster, running_cluster, wait_for
from tests.proof.runs import Run, Runs
from tests.testbed import images
from tests.testbed.fleet import Fleet

TRAINING, STANDBYS = ("a", "b", "c"), ("d", "e")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
REQUIREMENTS = {"numpy_lm": ["numpy==2.4.6"], "torch_ddp": ["torch==2.13.0", "numpy==2.4.6"]}
PRELOAD = {"numpy_lm": ["numpy"], "torch_ddp": ["torch"]}
PROGRAM = ["/app/train.py", "--steps", "100000", "--step-sleep", "0.03"]
ENV = {"GLOO_SOCKET_IFNAME": "eth0"}


def kill_container(cluster: Cluster, node: str, job: str) -> None:
    """End the container of a node's slot."""
    cluster.fleet.kill(node, container_name=f"sk-{job}-{node}")


def power_off(cluster: Cluster, node: str, _job: str) -> None:
    """Take the node's power away."""
    cluster.fleet.poweroff(node)


def guarded(
    cluster: Cluster, runs: Runs, example: str, *, unknown_action: str, fault: Callable[[Cluster, str, str], None]
) -> float:
    """Break the third node of a guarded run; return the seconds until all ranks are past their first step again."""
    cluster.make_fit()
    wait_for("both standbys are validated", cluster.standbys_validated, limit_s=120)
    run = runs.start(example, 1, unknown_action=unknown_action, steps=100_000)
    run.wait_for_restorable_step()
    node = run.node_of_slot(2)
    began = time.monotonic()
    fault(cluster, node, run.job)
    wait_for("all ranks are past their first step", lambda: _recovered(cluster, run), limit_s=120, every_s=0.001)
    took = time.monotonic() - began
    cluster.manage("job", "stop", run.job)
    return took


def _recovered(cluster: Cluster, run: Run) -> bool:
    folders: dict[int, Path] = {}
    for rank, name in enumerate(cluster.placement(run.job)):
        host = cluster.fleet.host(name)
        if not host.is_on:
            return False
        folders[rank] = host.outside(host.memory_dir) / run.job
    return all_past_first_step(folders, 1)


def measure() -> Iterator[Figure]:
    """Return the figures; each example has hosts of its own: engines restart when an image is brought to them."""
    for example in REQUIREMENTS:
        fleet = Fleet()
        try:
            with TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
                fleet.up(*TRAINING, *STANDBYS)
                yield from _example(fleet, Path(folder), example)
        finally:
            fleet.close()


def _example(fleet: Fleet, folder: Path, example: str) -> Iterator[Figure]:
    image = images.example(fleet.builder, example, REQUIREMENTS[example])
    fleet.load(image, *TRAINING, *STANDBYS)
    floor = Floor(
        fleet=fleet, image=image.reference, preload=PRELOAD[example], argv=PROGRAM, hosts=TRAINING, standby="d", env=ENV
    )
    work = folder / example
    work.mkdir()
    bare = {move: [floor.measure(move=move) for _ in range(ROUNDS)] for move in (True, False)}
    fleet.reset()
    places = {"training": TRAINING, "standbys": STANDBYS, "port": 28080, "broker_port": 28379}
    with running_cluster(fleet, work, **places) as cluster:
        runs = Runs(cluster=cluster, images={example: image.reference}, folder=work)

        def rounds(unknown_action: str, fault: Callable[[Cluster, str, str], None]) -> list[float]:
            return [guarded(cluster, runs, example, unknown_action=unknown_action, fault=fault) for _ in range(ROUNDS)]

        warm, cold = rounds("failover", kill_container), rounds("restart_in_place", kill_container)
        lost = rounds("restart_in_place", power_off)
    yield Figure(name=f"{example}: floor, warm standby", samples=bare[True])
    yield Figure(name=f"{example}: container died, moved to a warm standby", samples=warm, note="at most floor + 1 s")
    yield Figure(name=f"{example}: floor, new container", samples=bare[False])
    yield Figure(name=f"{example}: container died, new container in place", samples=cold, note="at most floor + 2 s")
    yield Figure(
        name=f"{example}: power-off, moved to a warm standby", samples=lost, note="includes the silence limit, 6 s"
    )
