"""The promise, end to end: a run that lost a node ends with the very bits of a run that lost nothing.

Real engines on real hosts, 3 training nodes and 2 standbys. Each recovered run is compared with an uninterrupted one:
final weights bit by bit, and the sequence of consumed samples, so that none is skipped or repeated (M7).
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.proof.cluster import Cluster, wait_for
from tests.proof.runs import Run, Runs

pytestmark = [pytest.mark.engine, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

SMALL = ("numpy_lm", 1)


def kill_the_rank(cluster: Cluster, run: Run) -> None:
    cluster.fleet.kill(run.node_of_slot(2), rank=2 * run.ranks_per_node)


def power_off_the_host(cluster: Cluster, run: Run) -> None:
    cluster.fleet.poweroff(run.node_of_slot(2))


def cut_the_host(cluster: Cluster, run: Run) -> None:
    cluster.fleet.cut(run.node_of_slot(2))


def kill_the_container(cluster: Cluster, run: Run) -> None:
    node = run.node_of_slot(2)
    cluster.fleet.kill(node, container_name=f"sk-{run.job}-{node}")


FAULTS = (kill_the_rank, kill_the_container, power_off_the_host, cut_the_host)
CASES = [
    *(pytest.param(SMALL, fault, id=f"numpy_lm-{fault.__name__}") for fault in FAULTS),
    pytest.param(("numpy_lm", 2), power_off_the_host, id="numpy_lm-2-ranks-a-node-power_off_the_host"),
    pytest.param(("torch_ddp", 2), kill_the_rank, id="torch_ddp-2-ranks-a-node-kill_the_rank"),
    pytest.param(("torch_ddp", 2), cut_the_host, id="torch_ddp-2-ranks-a-node-cut_the_host"),
]
"""Every fault with one program, one of a rank and one of a node with the other; STEPKEEPER_PROOFS=all takes all."""
if os.environ.get("STEPKEEPER_PROOFS") == "all":
    CASES += [pytest.param(("torch_ddp", 1), fault, id=f"torch_ddp-{fault.__name__}") for fault in FAULTS]


@pytest.mark.parametrize(("layout", "fault"), CASES)
def test_a_run_that_lost_a_node_ends_with_the_bits_of_an_uninterrupted_run(
    layout: tuple[str, int], fault: Callable[[Cluster, Run], None], cluster: Cluster, runs: Runs
) -> None:
    expected = runs.uninterrupted(*layout)
    run = runs.start(*layout)
    run.wait_for_restorable_step()
    placed = cluster.placement(run.job)
    fault(cluster, run)
    run.finish()
    assert run.weights() == expected.weights
    assert run.samples() == expected.samples
    recovery = cluster.failovers(run.job)[-1]
    assert recovery["state"] == "completed"
    moved = cluster.placement(run.job) != placed
    assert moved == (fault in {power_off_the_host, cut_the_host}), cluster.story(run.job)


def test_the_late_commit_of_a_cut_host_is_refused_when_it_returns(cluster: Cluster, runs: Runs) -> None:
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    node = run.node_of_slot(2)
    cluster.fleet.cut(node)
    wait_for("the failover completes", lambda: _completed(cluster, run), limit_s=90)
    cluster.fleet.uncut(node)
    wait_for("a report of the old attempt is refused", lambda: _refused(cluster, node), limit_s=60)
    run.finish()
    assert run.weights() == runs.uninterrupted(*SMALL).weights


def _completed(cluster: Cluster, run: Run) -> bool:
    failovers = cluster.failovers(run.job)
    return bool(failovers) and failovers[-1]["state"] == "completed"


def _refused(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return cluster.rows(
        "select r.* from reliability_report r join reliability_node n on n.id = r.node_id "
        "where n.name = ? and r.state = 'refused'",
        node,
    )


@pytest.mark.parametrize("state", ["fencing", "validating", "restoring", "starting", "verifying"])
def test_the_controller_may_be_killed_in_every_state_of_a_failover(state: str, cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    cluster.fleet.poweroff(run.node_of_slot(2))
    cluster.kill_controller_in(run.job, state)
    run.finish(limit_s=240)
    assert run.weights() == expected.weights
    assert run.samples() == expected.samples
    assert cluster.starts_per_node_and_epoch(run.job) == {1}


def test_the_broker_may_be_killed_during_a_failover(cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    cluster.fleet.poweroff(run.node_of_slot(2))
    wait_for("the failover begins", lambda: cluster.failovers(run.job), limit_s=60, every_s=0.005)
    cluster.kill_broker()
    cluster.start_broker()
    run.finish(limit_s=240)
    assert run.weights() == expected.weights
    assert run.samples() == expected.samples


def test_training_goes_on_while_the_whole_control_plane_is_down(cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    cluster.stop_server()
    cluster.kill_broker()
    run.wait_until_all_ranks_wrote_weights(limit_s=120)
    cluster.start_broker()
    cluster.start_server()
    run.finish()
    assert run.weights() == expected.weights
    assert cluster.failovers(run.job) == []


def test_a_slow_standby_is_set_aside_and_the_next_takes_over(cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    first, second = cluster.standbys
    cluster.forget_validations()
    cluster.fleet.slow(first, "100mbit")
    try:
        cluster.fleet.poweroff(run.node_of_slot(2))
        run.finish(limit_s=240)
    finally:
        cluster.fleet.unslow(first)
    assert second in cluster.placement(run.job)
    assert run.weights() == expected.weights
    assert "bandwidth" in " ".join(hold["reason"] for hold in cluster.holds(first)).lower()


def test_a_standby_whose_memory_flips_a_bit_during_its_check_is_set_aside(cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    run = runs.start(*SMALL)
    run.wait_for_restorable_step()
    first, second = cluster.standbys
    probes_before = cluster.sdc_probes(first)
    cluster.forget_validations()
    cluster.fleet.poweroff(run.node_of_slot(2))
    probe = wait_for(
        "the standby's check runs", lambda: cluster.sdc_probes(first)[len(probes_before) :], limit_s=90, every_s=0.002
    )[0]
    cluster.flip_bit(first, pid=probe["pid"], address=probe["address"] + probe["bytes"] // 2)
    run.finish(limit_s=240)
    assert second in cluster.placement(run.job), cluster.story(run.job)
    assert run.weights() == expected.weights
    assert "corruption" in " ".join(hold["reason"] for hold in cluster.holds(first)).lower()


def test_a_job_whose_image_does_not_exist_fails_with_what_to_do(cluster: Cluster, runs: Runs) -> None:
    job = cluster.submit(runs.spec(*SMALL) | {"image": "sha256:" + "0" * 64})
    wait_for("the job fails", lambda: cluster.job(job)["state"] == "failed", limit_s=60)
    reason = cluster.job(job)["state_reason"]
    assert "sha256:0000" in reason
    assert "Load the image on the node" in reason


def test_a_storage_folder_that_vanishes_never_stops_training(cluster: Cluster, runs: Runs) -> None:
    expected = runs.uninterrupted(*SMALL)
    folder = cluster.folder / "vanishing-storage"
    folder.mkdir()
    run = runs.start(*SMALL, storage_dir=str(folder))
    run.wait_for_restorable_step()
    folder.rename(folder.with_name("elsewhere"))
    wait_for("the trouble is shown", lambda: cluster.findings(run.job, "store-unreachable"), limit_s=60)
    run.finish()
    assert run.weights() == expected.weights
    assert cluster.failovers(run.job) == []
    assert "mount" in cluster.findings(run.job, "store-unreachable")[0]["evidence"]
