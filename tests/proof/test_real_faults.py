"""Causes made for real inside the hosts: each is judged rightly, and the run goes on and finishes.

A rank breaks itself where the cause lies in it (`breaking.py`, once, when it is asked to), or is hit from outside.
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.proof.cluster import Cluster, wait_for
from tests.proof.runs import OUT, Run, Runs
from tests.testbed.ranks import pid_of_rank

pytestmark = [pytest.mark.engine, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

RANK = 1
MIB = 2**20
BREAKING = Path(__file__).with_name("breaking.py")


def start(runs: Runs, **fields: Any) -> Run:
    """Start the small example below a program that can break its rank; return when it can be restored."""
    spec = runs.spec("numpy_lm", 1, steps=400)
    out = Path(spec["mounts"][0]["source"])
    shutil.copy(BREAKING, out)
    spec["program"] = [f"{OUT}/{BREAKING.name}", *spec["program"]]
    spec["mounts"] += fields.pop("mounts", [])
    job = runs.cluster.submit(spec | fields)
    run = Run(cluster=runs.cluster, job=job, example="numpy_lm", ranks_per_node=1, out=out)
    run.wait_for_restorable_step()
    return run


def break_itself(how: str) -> Callable[[Run], None]:
    """Return what asks the rank to break in this way."""

    def ask(run: Run) -> None:
        asked = run.out / f"break-{RANK}"
        asked.with_suffix(".part").write_text(how)
        asked.with_suffix(".part").rename(asked)

    return ask


def terminate_it(run: Run) -> None:
    """Send the rank a SIGTERM from outside of its container."""
    host = run.cluster.fleet.host(run.node_of_slot(RANK))
    os.kill(pid_of_rank(host, RANK, run.job), signal.SIGTERM)


def first_incident(cluster: Cluster, run: Run) -> dict[str, Any] | None:
    """Return the first incident of a run that asks for something, with the name of its node."""
    found = cluster.rows(
        "select i.*, n.name node from reliability_incident i join reliability_job j on j.id = i.job_id "
        "left join reliability_node n on n.id = i.node_id where j.name = ? and i.action <> 'observe' order by i.id",
        run.job,
    )
    return found[0] if found else None


# A SIGTERM is told as what others do to a rank: it has no root and accuses no node.
CASES = [
    pytest.param(break_itself("segfault"), "exit-139", "software", {}, id="a segfault"),
    pytest.param(break_itself("bus-error"), "exit-135", "software", {"shm_bytes": 4 * MIB}, id="a bus error"),
    pytest.param(break_itself("memory"), "oom", "application", {"memory_bytes": 400 * MIB}, id="an OOM kill"),
    pytest.param(terminate_it, "", "software", {}, id="a SIGTERM from outside"),
]


@pytest.mark.parametrize(("cause", "code", "fault_class", "resources"), CASES)
def test_a_rank_that_really_ends_so_is_judged_rightly_and_the_run_is_finished(
    cause: Callable[[Run], None],
    code: str,
    fault_class: str,
    resources: dict[str, int],
    cluster: Cluster,
    runs: Runs,
) -> None:
    run = start(runs, resources=resources)
    placed = cluster.placement(run.job)
    cause(run)
    seen = wait_for("the incident is there", lambda: first_incident(cluster, run), limit_s=60)
    run.finish()
    story = cluster.story(run.job)
    assert (seen["code"], seen["fault_class"], seen["action"]) == (code, fault_class, "restart_in_place"), story
    assert seen["node"] == (placed[RANK] if code else None), story
    assert [(each["kind"], each["state"]) for each in cluster.failovers(run.job)] == [
        ("restart_in_place", "completed")
    ], story
    assert cluster.placement(run.job) == placed
