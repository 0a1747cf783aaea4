"""A rank that stands still while its node goes on: found at the stated limit, named, and the run ends as it should.

Real engines on real hosts. Heartbeats of the node never stop, nothing ends by itself and nothing is printed.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.proof.cluster import Cluster, wait_for
from tests.proof.runs import Run, Runs
from tests.testbed.ranks import pid_of_rank

pytestmark = [pytest.mark.engine, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

RANK = 1


def hang_of(cluster: Cluster, run: Run) -> dict[str, object] | None:
    """Return the finding of a hang, with the name of its node."""
    query = (
        "select f.*, n.name node from reliability_finding f join reliability_node n on n.id = f.node_id "
        "join reliability_job j on j.id = f.job_id where j.name = ? and f.code like 'hang%' order by f.id"
    )
    found = cluster.rows(query, run.job)
    return found[0] if found else None


def stop_the_rank(cluster: Cluster, run: Run) -> str:
    os.kill(pid_of_rank(cluster.fleet.host(run.node_of_slot(RANK)), RANK, run.job), signal.SIGSTOP)
    return "stopped"


def freeze_the_container(cluster: Cluster, run: Run) -> str:
    node = run.node_of_slot(RANK)
    host = cluster.fleet.host(node)
    container = host.docker.containers.get(f"sk-{run.job}-{node}")
    host.group.freeze(f"containers/{container.id}")
    return "frozen"


@pytest.fixture
def thawed(cluster: Cluster) -> Iterator[None]:
    """No host keeps a frozen container, whatever became of the test."""
    yield
    for name in cluster.training:
        group = cluster.fleet.host(name).group
        for folder in (group.path / "containers").glob("*/"):
            group.thaw(f"containers/{folder.name}")


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("fault", [stop_the_rank, freeze_the_container])
def test_a_rank_that_stands_still_is_named_as_the_hang_and_the_run_is_finished(
    fault: object, cluster: Cluster, runs: Runs
) -> None:
    run = runs.start("numpy_lm", 1, steps=400, approval="automatic")
    run.wait_for_restorable_step()
    node = run.node_of_slot(RANK)
    state = fault(cluster, run)  # type: ignore[operator]
    hang = wait_for("the hang is found", lambda: hang_of(cluster, run), limit_s=90)
    assert (hang["code"], hang["rank"], hang["node"]) == ("hang", RANK, node), hang["evidence"]
    assert (hang["fault_class"], hang["action"]) == ("software", "restart_in_place")
    assert f", {state}." in str(hang["evidence"])
    run.finish()
    kinds = [each["kind"] for each in cluster.failovers(run.job)]
    assert kinds[0] == "restart_in_place", cluster.story(run.job)
    if state == "stopped":
        assert kinds == ["restart_in_place"], cluster.story(run.job)
