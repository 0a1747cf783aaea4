"""Lines of the real kernel log, and disks that are really full or read-only: the class, the action, and what follows.

The agent of one node reads this machine's own kernel log, looks at its disks each second, and has its snapshots on a
small file system of their own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proof.cluster import Cluster, wait_for
from tests.proof.runs import Runs
from tests.proof.test_real_faults import RANK, break_itself, first_incident, start
from tests.testbed.disks import MIB, Disk

pytestmark = [pytest.mark.engine, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

NODE = "b"
KMSG = Path("/dev/kmsg")
OFTEN = "[tiers]\nperiod_s = 1\n\n[disks]\nperiod_s = 1\n"
STEPS = 600


@pytest.fixture
def disk(cluster: Cluster, tmp_path: Path) -> Iterator[Disk]:
    """The disk of the node's snapshots."""
    cluster.stop_agent(NODE)
    host = cluster.fleet.host(NODE)
    made = Disk(cluster.fleet, NODE, host.ssd_dir, tmp_path / "ssd.img", size=64 * MIB)
    checks = tmp_path / "checks.toml"
    checks.write_text(OFTEN)
    cluster.kernel_logs[NODE], cluster.agent_options[NODE] = "kmsg", ["--checks-file", str(checks)]
    cluster.make_fit()
    yield made
    cluster.stop_agent(NODE)
    made.remove()
    del cluster.kernel_logs[NODE], cluster.agent_options[NODE]


def found(cluster: Cluster, code: str, *, after: int) -> dict[str, Any] | None:
    """Return the first later finding of a code on the node, with the class and action of its incident."""
    query = (
        "select f.id, f.code, f.source, f.fault_class, f.action, i.action done from reliability_finding f "
        "join reliability_node n on n.id = f.node_id join reliability_incident i on i.id = f.incident_id "
        "where n.name = ? and f.code = ? and f.id > ? order by f.id"
    )
    rows = cluster.rows(query, NODE, code, after)
    return rows[0] if rows else None


def last_finding(cluster: Cluster) -> int:
    return int(cluster.rows("select coalesce(max(id), 0) id from reliability_finding")[0]["id"])


def copies_on_ssd(cluster: Cluster, job: str, *, beyond: int) -> int:
    """Return how many later steps of a job have a copy on the disk of the node."""
    query = (
        "select count(*) n from reliability_snapshotcopy c join reliability_snapshot s on s.id = c.snapshot_id "
        "join reliability_job j on j.id = s.job_id join reliability_node n on n.id = c.node_id "
        "where j.name = ? and n.name = ? and c.tier = 'ssd' and s.step > ?"
    )
    return int(cluster.rows(query, job, NODE, beyond)[0]["n"])


@pytest.mark.usefixtures("disk")
def test_a_fatal_line_of_the_real_kernel_log_moves_the_rank_to_a_standby(cluster: Cluster, runs: Runs) -> None:
    wait_for("both standbys are validated", cluster.standbys_validated, limit_s=120)
    expected = runs.uninterrupted("numpy_lm", 1)
    run = runs.start("numpy_lm", 1)
    run.wait_for_restorable_step()
    assert run.node_of_slot(RANK) == NODE
    KMSG.write_bytes(b"<3>NVRM: Xid (PCI:0000:3b:00): 79, pid=0, name=, GPU has fallen off the bus.\n")
    run.finish()
    story = cluster.story(run.job)
    seen = first_incident(cluster, run)
    assert seen is not None, story
    assert (seen["code"], seen["fault_class"], seen["action"]) == ("xid-79", "hardware", "failover"), story
    assert [(each["kind"], each["state"]) for each in cluster.failovers(run.job)] == [("failover", "completed")], story
    assert NODE not in cluster.placement(run.job), story
    assert (run.weights(), run.samples()) == (expected.weights, expected.samples)


def test_a_full_disk_of_snapshots_is_told_and_training_goes_on(disk: Disk, cluster: Cluster, runs: Runs) -> None:
    before = last_finding(cluster)
    run = runs.start("numpy_lm", 1, steps=STEPS)
    run.wait_for_restorable_step()
    assert run.node_of_slot(RANK) == NODE
    disk.fill()
    seen = wait_for("it is told", lambda: found(cluster, "disk-full", after=before), limit_s=60)
    disk.free()
    freed_at = cluster.lowest_step(run.job)
    wait_for("copies go there again", lambda: copies_on_ssd(cluster, run.job, beyond=freed_at), limit_s=60)
    run.finish()
    assert (seen["fault_class"], seen["action"], seen["done"]) == ("storage", "observe", "observe")
    assert cluster.failovers(run.job) == [], cluster.story(run.job)


def test_a_disk_that_turns_read_only_is_told_and_training_goes_on(disk: Disk, cluster: Cluster, runs: Runs) -> None:
    before = last_finding(cluster)
    run = runs.start("numpy_lm", 1, steps=STEPS)
    run.wait_for_restorable_step()
    disk.fail()
    for code in ("filesystem-read-only", "tier-read-only"):
        seen = wait_for(f"{code} is told", lambda code=code: found(cluster, code, after=before), limit_s=60)
        assert (seen["fault_class"], seen["action"], seen["done"]) == ("storage", "observe", "observe"), seen
    failed_at = cluster.lowest_step(run.job)
    run.finish()
    assert copies_on_ssd(cluster, run.job, beyond=failed_at + 20) == 0
    assert cluster.failovers(run.job) == [], cluster.story(run.job)


@pytest.fixture
def own_disk(cluster: Cluster, tmp_path: Path) -> Iterator[Disk]:
    """A disk that the program writes to."""
    made = Disk(cluster.fleet, NODE, tmp_path / "own", tmp_path / "own.img", size=16 * MIB)
    yield made
    made.remove()


def on(disk: Disk) -> dict[str, Any]:
    """Return what has a job see the disk."""
    return {"source": str(disk.folder), "target": "/disk"}


def test_a_program_that_ends_on_a_full_disk_waits_for_a_person_and_goes_on_where_it_was(
    own_disk: Disk, cluster: Cluster, runs: Runs
) -> None:
    run = start(runs, mounts=[on(own_disk)])
    placed = cluster.placement(run.job)
    break_itself("write")(run)
    seen = wait_for("the incident is there", lambda: first_incident(cluster, run), limit_s=60)
    assert (seen["code"], seen["fault_class"], seen["action"]) == ("exit-disk-full", "storage", "hold")
    wait_for("the job waits", lambda: cluster.job(run.job)["state"] == "waiting", limit_s=30)
    own_disk.free()
    cluster.manage("job", "recover", run.job)
    run.finish()
    assert cluster.placement(run.job) == placed


def test_a_program_that_ends_on_a_read_only_disk_is_started_again_in_place(
    own_disk: Disk, cluster: Cluster, runs: Runs
) -> None:
    run = start(runs, mounts=[on(own_disk)])
    placed = cluster.placement(run.job)
    own_disk.fail()
    break_itself("write")(run)
    seen = wait_for("the incident is there", lambda: first_incident(cluster, run), limit_s=60)
    assert (seen["code"], seen["fault_class"], seen["action"]) == ("exit-storage", "storage", "restart_in_place")
    run.finish()
    assert [(each["kind"], each["state"]) for each in cluster.failovers(run.job)] == [
        ("restart_in_place", "completed")
    ], cluster.story(run.job)
    assert cluster.placement(run.job) == placed
