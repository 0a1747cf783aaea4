"""How long from the cause of a fault until an incident holds it, on real hosts, engines and the real kernel log?

From the moment before the cause is made until a row of the database says that a finding of it belongs to an incident.
Environment: STEPKEEPER_BENCH_ROUNDS, 100 for the 99th percentile; STEPKEEPER_BENCH_ONLY, some of: kernel, container,
exit, hang, silence.
"""

import itertools
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figure
from reliability.domain.faults.families.progress import HANG_CODES
from tests.proof.cluster import OPEN_STATES, Cluster, running_cluster, wait_for
from tests.proof.runs import Run, Runs
from tests.testbed import images
from tests.testbed.fleet import Fleet
from tests.testbed.ranks import pid_of_rank

TRAINING, STANDBYS = ("a", "b", "c"), ("d", "e")
IDLE = "e"
ROUNDS = int(os.environ.get("STEPKEEPER_BENCH_ROUNDS", "100"))
SILENCE_ROUNDS = max(ROUNDS // 10, min(ROUNDS, 3))
"""Each takes half a minute: a host is frozen, its place is taken, and all is made as before."""
HANG_ROUNDS = min(SILENCE_ROUNDS, 2 * len(TRAINING))
"""Twice on each node: after a third hang of a node within a day its place is given to another."""
ONLY = set(filter(None, os.environ.get("STEPKEEPER_BENCH_ONLY", "").split(",")))
SILENCE_S = 6.0
_LIMIT = re.compile(r"limit ([\d.]+)")
KMSG = Path("/dev/kmsg")
UNKNOWN_XID = 50_000
"""Numbers from here on are no known Xid: each is a code, and so an incident, of its own, on which nothing is done."""
STEPS_BETWEEN = 40
SETTINGS = {"STEPKEEPER_SILENCE_S": f"{SILENCE_S:g}", "STEPKEEPER_BACK_OFF_S": "0"}


@dataclass
class Stopwatch:
    """Measures until a finding that is new belongs to an incident."""

    cluster: Cluster

    def seconds(self, cause: Callable[[], object], codes: tuple[str, ...], *, limit_s: float = 300.0) -> float:
        """Make a fault and return the seconds until an incident holds a finding with one of the codes."""
        newest = self.cluster.rows("select coalesce(max(id), 0) id from reliability_finding")[0]["id"]
        marks = ", ".join("?" * len(codes))
        query = f"select 1 from reliability_finding where id > ? and incident_id is not null and code in ({marks})"  # noqa: S608
        began = time.monotonic()
        cause()
        wait_for(
            f"an incident holds one of {', '.join(codes)}",
            lambda: self.cluster.rows(query, newest, *codes),
            limit_s=limit_s,
            every_s=0.002,
        )
        return time.monotonic() - began


def kernel_lines(watch: Stopwatch) -> Iterator[float]:
    """Yield how long a line of the real kernel log takes, one that root wrote."""
    for number in range(UNKNOWN_XID, UNKNOWN_XID + ROUNDS):
        line = f"<3>NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=bench, Made by a measurement\n".encode()
        yield watch.seconds(lambda line=line: KMSG.write_bytes(line), (f"xid-{number}",))  # type: ignore[misc]


def in_place(
    watch: Stopwatch, run: Run, cause: Callable[[], object], codes: tuple[str, ...], *, rounds: int = ROUNDS
) -> Iterator[float]:
    """Yield how long a fault takes after which the job is started again where it was; between two it goes on."""
    for _ in range(rounds):
        step = watch.cluster.lowest_step(run.job)
        watch.cluster.wait_running_beyond(run.job, step + STEPS_BETWEEN, limit_s=120)
        try:
            took = watch.seconds(cause, codes)
            wait_for("the job runs again", lambda: _runs(watch.cluster, run), limit_s=120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{watch.cluster.story(run.job)}") from error
        yield took


def hangs(watch: Stopwatch, run: Run, cause: Callable[[], object]) -> Iterator[float]:
    """Yield how long beyond the limit that the finding states it takes when a rank stands still."""
    for took in in_place(watch, run, cause, HANG_CODES, rounds=HANG_ROUNDS):
        query = "select evidence from reliability_finding where code like 'hang%' order by id desc limit 1"
        stated = _LIMIT.search(str(watch.cluster.rows(query)[0]["evidence"]))
        if stated is None:
            raise RuntimeError("The finding of a hang states no limit.")
        yield took - float(stated[1])


def _runs(cluster: Cluster, run: Run) -> bool:
    at_work = any(each["state"] in OPEN_STATES for each in cluster.failovers(run.job))
    return not at_work and bool(cluster.job(run.job)["state"] == "running")


def silence(watch: Stopwatch, runs: Runs) -> Iterator[float]:
    """Yield how long it takes when all of a host stands still and nothing of it is heard any more."""
    cluster = watch.cluster
    for _ in range(SILENCE_ROUNDS):
        cluster.make_fit()
        wait_for("both standbys are validated", cluster.standbys_validated, limit_s=120)
        run = runs.start("numpy_lm", 1, steps=100_000)
        run.wait_for_restorable_step()
        node = run.node_of_slot(2)
        try:
            yield watch.seconds(lambda node=node: cluster.fleet.freeze(node), ("node-lost",))  # type: ignore[misc]
        finally:
            cluster.fleet.thaw(node)
        wait_for("the job runs again", lambda run=run: _runs(cluster, run), limit_s=120)  # type: ignore[misc]
        cluster.manage("job", "stop", run.job)


def p99(samples: list[float]) -> float:
    """Return the 99th percentile (nearest rank): of less than 100 samples the largest."""
    return sorted(samples)[math.ceil(0.99 * len(samples)) - 1]


def _figure(name: str, samples: Iterator[float], target_s: float) -> Figure:
    found = list(samples)
    return Figure(name=name, samples=found, note=f"p99 {p99(found):.3f} s, at most {target_s:g} s")


def _asked(name: str) -> bool:
    return not ONLY or name in ONLY


def measure() -> Iterator[Figure]:
    """Return the figures."""
    fleet = Fleet()
    try:
        with TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
            fleet.up(*TRAINING, *STANDBYS)
            yield from _measured(fleet, Path(folder))
    finally:
        fleet.close()


def _measured(fleet: Fleet, folder: Path) -> Iterator[Figure]:
    image = images.example(fleet.builder, "numpy_lm", ["numpy==2.4.6"])
    fleet.load(image, *TRAINING, *STANDBYS)
    options = {
        "training": TRAINING,
        "standbys": STANDBYS,
        "port": 28180,
        "broker_port": 28479,
        "settings": SETTINGS,
        "kernel_logs": {IDLE: "kmsg"},
    }
    with running_cluster(fleet, folder, **options) as cluster:
        cluster.make_fit()
        watch, runs = Stopwatch(cluster), Runs(cluster, {"numpy_lm": image.reference}, folder)
        if _asked("kernel"):
            yield _figure("kernel line in /dev/kmsg", kernel_lines(watch), 1.0)
        yield from _of_a_run(watch, runs)
        if _asked("silence"):
            yield _figure("silence of a host", silence(watch, runs), SILENCE_S + 1.0)


def _of_a_run(watch: Stopwatch, runs: Runs) -> Iterator[Figure]:
    """Yield the figures of faults after which one and the same job goes on where it was."""
    cluster, fleet = watch.cluster, watch.cluster.fleet
    run = runs.start("numpy_lm", 1, steps=10_000_000, unknown_action="restart_in_place", restart_budget=10_000)
    run.wait_for_restorable_step()
    node = run.node_of_slot(2)

    def end_container() -> None:
        fleet.kill(node, container_name=f"sk-{run.job}-{node}")

    def end_rank() -> None:
        fleet.kill(node, rank=2, job=run.job)

    if _asked("container"):
        yield _figure("container death", in_place(watch, run, end_container, ("container-died", "oom")), 0.5)
    if _asked("exit"):
        yield _figure("exit code of a rank", in_place(watch, run, end_rank, ("exit-137",)), 0.5)

    ranks = itertools.cycle(range(len(TRAINING)))

    def stop_rank() -> None:
        rank = next(ranks)
        host = fleet.host(run.node_of_slot(rank))
        os.kill(pid_of_rank(host, rank, run.job), signal.SIGSTOP)

    if _asked("hang"):
        yield _figure("hang, beyond the stated limit", hangs(watch, run, stop_rank), 1.0)
    cluster.manage("job", "stop", run.job)
