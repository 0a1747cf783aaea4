"""A node's word changes only what it has a part in; what it says of anything else is kept as its own."""

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import Failover, Finding, Hold, Job, Node, OrderRecord, SnapshotCopy
from reliability.services import access, clock, reports
from tests.services.world import Agent, World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _speaks_of(agent: Agent, job: Job) -> Agent:
    agent.job, agent.epoch = job.name, job.epoch
    return agent


def test_a_node_without_a_slot_cannot_have_a_job_moved_and_is_judged_itself(world: World) -> None:
    job = world.running_job()
    stranger = _speaks_of(world.agents["s1"], job)
    stranger.report("finding", {"code": "xid-79", "evidence": "GPU has fallen off the bus", "count": 1})
    for _ in range(3):
        world.tick()
    assert not Failover.objects.exists()
    assert world.job().state == Job.State.RUNNING
    assert Finding.objects.get(code="xid-79").job is None
    assert Node.objects.get(name="s1").health == NodeHealth.UNHEALTHY


def test_a_finding_of_a_node_that_gave_its_slot_away_meanwhile_moves_nothing(world: World) -> None:
    job = world.running_job()
    stranger = Node.objects.get(name="s1")
    Finding.objects.create(
        node=stranger, job=job, epoch=job.epoch, code="xid-79", fault_class="hardware", action="failover",
        severity="fatal", found_at=clock.now(),
    )  # fmt: skip
    for _ in range(3):
        world.tick()
    assert not Failover.objects.exists()
    assert Hold.objects.filter(node=stranger).exists()


def test_a_node_without_a_part_in_a_job_cannot_spoil_its_copies_on_storage(world: World) -> None:
    job = world.running_job()
    world.save(20)
    problem = {"step": 20, "snapshot_epoch": 1, "rank": 0, "tier": "storage", "code": "digest_mismatch", "message": "x"}
    _speaks_of(world.agents["s1"], job).report("snapshot_problem", problem)
    world.tick()
    assert SnapshotCopy.objects.filter(tier="storage", state="committed").count() == 3
    assert world.job().storage_step == 20
    world.agents["n1"].report("snapshot_problem", problem)
    world.tick()
    assert SnapshotCopy.objects.filter(tier="storage", state="committed").count() == 2
    assert world.job().storage_step is None


def test_an_engine_that_does_not_answer_makes_a_standby_unusable(world: World) -> None:
    body = {"event": "stream_ended", "exit_code": None, "oom_killed": False, "ordered": False, "name": ""}
    world.agents["s1"].report("container", body)
    world.tick()
    assert Node.objects.get(name="s1").health == NodeHealth.UNHEALTHY


def test_a_refused_order_becomes_an_incident_of_its_job_and_leaves_nothing_undecided(world: World) -> None:
    job = world.running_job()
    order = OrderRecord.objects.get(kind="start", node__name="n2")
    world.agents["n2"].report("order_refused", {"order": str(order.pk), "reason": "expired", "message": "late"})
    world.tick()
    found = Finding.objects.get(code="order-expired")
    assert (found.job, found.epoch) == (job, job.epoch)
    assert found.incident is not None
    assert not Finding.objects.filter(incident=None).exists()
    assert world.job().state == Job.State.RUNNING


@pytest.mark.parametrize(("epoch", "taken", "told"), [(7, 1, "was never begun"), (1, 3, "later than epoch 1")])
def test_a_report_from_an_attempt_that_never_was_is_refused(world: World, epoch: int, taken: int, told: str) -> None:
    world.running_job()
    body = {
        "snapshot_epoch": taken, "step": 5, "rank": 0, "tier": "memory", "path": "/m", "size_bytes": 1,
        "digest": "blake2b:00", "stall_s": None,
    }  # fmt: skip
    answer = world.agents["n1"].report("snapshot_copy", body, epoch=epoch)[0]
    assert answer["status"] == "refused"
    assert told in answer["message"]
    assert not SnapshotCopy.objects.exists()


def test_a_commit_told_twice_does_not_revive_a_corrupt_copy(world: World) -> None:
    world.running_job()
    world.save(20)
    SnapshotCopy.objects.filter(tier="ssd", rank=0).update(state="corrupt")
    world.agents["n1"].save_one(0, 20, "ssd")
    reports.process_new()
    assert SnapshotCopy.objects.get(tier="ssd", rank=0).state == "corrupt"


def test_a_copy_that_a_restore_brought_back_tells_no_time_of_a_save(world: World) -> None:
    world.running_job()
    world.save(20)
    Job.objects.update(epoch=2)
    SnapshotCopy.objects.filter(tier="memory").delete()
    agent = world.agents["n1"]
    agent.epoch = 2
    agent.save_one(0, 20, "memory", epoch=1)
    reports.process_new()
    assert SnapshotCopy.objects.get(tier="memory").stall_s is None


def test_another_machine_does_not_get_the_name_of_a_silent_node_that_holds_a_slot(bare_world: World) -> None:
    ids = {"machine_id": "aaa", "board_serial": ""}
    agent = bare_world.node("n1", "training", hardware_ids=ids)
    bare_world.tick()
    bare_world.running_job(nodes=1)
    agent.power_off()
    bare_world.pass_time(30)
    del agent.token
    agent.facts["hardware_ids"] = {"machine_id": "bbb", "board_serial": "7"}
    with pytest.raises(access.NameTaken, match="machine_id"):
        agent.join()
    agent.facts["hardware_ids"] = ids
    agent.join()
    assert Node.objects.get(name="n1").incarnation == agent.incarnation
