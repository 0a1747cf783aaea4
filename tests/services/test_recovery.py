"""Recoveries from the first sign of a fault to the first step after it, for every way they can go."""

import pytest

from reliability.domain.failover import State
from reliability.models import Failover, Hold, Incident, Job, Node, SnapshotCopy, Validation
from reliability.selectors import core
from reliability.services import nodes, reports, snapshot_tally
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_a_job_starts_on_the_training_nodes_and_runs(world: World) -> None:
    job = world.running_job()
    assert [slot.node.name for slot in core.slots_of(job)] == ["n1", "n2", "n3"]
    assert job.epoch == 1
    assert sorted(world.starts()) == [("n1", 1), ("n2", 1), ("n3", 1)]


def test_a_killed_rank_is_restarted_in_place_from_the_newest_snapshot(world: World) -> None:
    world.running_job()
    world.save(20)
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.kind == "restart_in_place"
    assert failover.moves == []
    assert failover.restore_step == 20
    job = world.job()
    assert (job.state, job.epoch) == (Job.State.RUNNING, 2)
    assert sorted(world.starts())[1::2] == [("n1", 2), ("n2", 2), ("n3", 2)]
    assert Incident.objects.get().closed_at is not None


def test_a_lost_node_is_replaced_by_the_best_standby(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(lambda: Failover.objects.exists())
    for agent in world.agents.values():
        agent.stepping = True
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.incident.code == "node-lost"
    assert [(move["from"], move["to"]) for move in failover.moves] == [("n3", "s1")]
    assert Node.objects.get(name="n3").role == "standby"
    assert Hold.objects.get(node__name="n3").owner == nodes.AUTOMATION
    assert Node.objects.get(name="s1").role == "training"
    fenced = failover.events.get(event="fenced").detail["nodes"]
    assert fenced["n1"] == "confirmed"
    assert "lease" in fenced["n3"]


def test_the_stages_of_a_recovery_add_up_to_the_whole(world: World) -> None:
    world.running_job()
    world.save(20)
    world.agents["n2"].rank_dies(1, 139)
    failover = world.recover()
    stages = core.stage_times(failover)
    assert [stage["stage"] for stage in stages] == list(core.STAGES)
    assert sum(stage["seconds"] for stage in stages) == pytest.approx(core.recovery_seconds(failover))


def test_a_corrupt_copy_falls_back_to_the_next_older_step(world: World) -> None:
    world.running_job()
    world.save(20)
    world.save(40, tiers=("memory",))
    world.agents["n1"].bad_paths = {"/memory/e1-s40-r0"}
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.restore_step == 20
    assert failover.attempt == 2
    assert SnapshotCopy.objects.get(snapshot__step=40, rank=0).state == "corrupt"
    assert failover.events.filter(event="snapshot_refused").count() == 1


def test_without_any_snapshot_the_job_starts_again_from_nothing(world: World) -> None:
    world.running_job()
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.restore_step is None


def test_when_nothing_durable_can_be_read_the_job_fails_and_says_why(world: World) -> None:
    world.running_job()
    world.save(20)
    SnapshotCopy.objects.update(state="lost")
    snapshot_tally.recount_all()
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    assert failover.state == State.FAILED
    job = world.job()
    assert job.state == Job.State.FAILED
    assert "No step can be read by every rank" in job.state_reason


def test_a_standby_that_fails_its_check_is_set_aside_and_the_next_takes_over(world: World) -> None:
    world.agents["s1"].digest = "wrong"
    world.running_job()
    world.save(20)
    _lose(world, "n3")
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert [move["to"] for move in failover.moves] == ["s2"]
    assert Validation.objects.filter(node__name="s1", verdict="fail").exists()
    assert "differs" in Hold.objects.get(node__name="s1").reason


def test_a_standby_with_a_slow_network_is_set_aside(world: World) -> None:
    world.agents["s1"].bandwidth = 10e6
    world.running_job()
    world.save(20)
    _lose(world, "n3")
    failover = world.recover()
    assert [move["to"] for move in failover.moves] == ["s2"]
    assert "less than 1/4" in Hold.objects.get(node__name="s1").reason


def test_a_standby_that_does_not_answer_its_check_is_no_pass(world: World) -> None:
    world.agents["s1"].replies["probe_sdc"] = lambda order: None
    world.running_job()
    world.save(20)
    _lose(world, "n3")
    failover = world.recover(seconds=90)
    assert [move["to"] for move in failover.moves] == ["s2"]
    assert Validation.objects.filter(node__name="s1", verdict="timeout").exists()


def test_a_standby_that_cannot_start_is_set_aside_and_the_next_gets_a_new_epoch(world: World) -> None:
    error = {"code": "image_missing", "message": "The image is not there.", "hint": "Check it."}
    world.agents["s1"].replies["start"] = lambda order: {"status": "failed", "error": error}
    world.running_job()
    world.save(20)
    _lose(world, "n3")
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert [(move["from"], move["to"]) for move in failover.moves] == [("n3", "s2")]
    assert [each["node"] for each in failover.refused_standbys] == ["s1"]
    assert failover.to_epoch == world.job().epoch == 3


def test_without_a_standby_it_waits_and_goes_on_by_itself_when_one_comes(bare_world: World) -> None:
    for name in ("n1", "n2", "n3"):
        bare_world.node(name, "training")
    bare_world.tick()
    bare_world.running_job()
    bare_world.save(20)
    _lose(bare_world, "n3")
    bare_world.until(lambda: bare_world.failover().state == State.WAITING_FOR_STANDBY)
    assert bare_world.failover().events.get(event="no_standby").detail["missing"] == 1
    bare_world.node("s9")
    failover = bare_world.recover()
    assert failover.state == State.COMPLETED
    assert [move["to"] for move in failover.moves] == ["s9"]


def test_two_nodes_lost_together_are_one_recovery_with_two_moves(bare_world: World) -> None:
    for index in range(6):
        bare_world.node(f"n{index}", "training")
    for index in range(3):
        bare_world.node(f"s{index}")
    bare_world.tick()
    bare_world.running_job(nodes=6)
    bare_world.save(20)
    _lose(bare_world, "n4", "n5")
    failover = bare_world.recover()
    assert failover.state == State.COMPLETED
    assert sorted(move["from"] for move in failover.moves) == ["n4", "n5"]
    assert Failover.objects.count() == 1


def test_a_node_that_cannot_stop_is_unconfirmed_first_and_then_given_up(world: World) -> None:
    stuck = {"code": "fence_unconfirmed", "message": "It still runs.", "hint": ""}
    world.running_job()
    world.save(20)
    world.agents["n3"].replies["stop"] = lambda order: {"status": "failed", "error": stuck}
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    events = [event.event for event in failover.events.all()]
    assert events.index("fence_timed_out") < events.index("lease_ran_out")
    assert failover.state == State.COMPLETED
    assert [(move["from"], move["to"]) for move in failover.moves] == [("n3", "s1")]


def test_a_late_confirmation_ends_the_waiting(world: World) -> None:
    world.running_job()
    world.save(20)
    world.agents["n3"].replies["stop"] = lambda order: None
    world.agents["n2"].rank_dies(1, 137)
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.FENCE_UNCONFIRMED)
    del world.agents["n3"].replies["stop"]
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.moves == []


def test_a_restore_mismatch_distrusts_the_snapshot_and_takes_an_older_one(world: World) -> None:
    world.running_job()
    world.save(20)
    world.save(40)
    agent = world.agents["n2"]
    started = agent._first_steps

    def refuse_40(order: object) -> None:
        if order.payload["restore"]["step"] == 40:  # type: ignore[attr-defined]
            agent.rank_dies(1, 86)
        else:
            started(order)  # type: ignore[arg-type]

    agent._first_steps = refuse_40  # type: ignore[method-assign]
    agent.rank_dies(1, 137)
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.restore_step == 20
    assert world.job().epoch == 3
    assert core.distrusted(world.job())


def test_a_snapshot_after_which_the_job_fails_twice_is_distrusted(world: World) -> None:
    world.running_job()
    world.save(20)
    world.save(40)
    agent = world.agents["n2"]
    started = agent._first_steps

    def fail_from_40(order: object) -> None:
        if order.payload["restore"]["step"] == 40:  # type: ignore[attr-defined]
            agent.rank_dies(1, 1, tail="FloatingPointError: loss is NaN")
        else:
            started(order)  # type: ignore[arg-type]

    agent._first_steps = fail_from_40  # type: ignore[method-assign]
    agent.rank_dies(1, 137)
    failover = world.recover()
    restored = [event.detail["step"] for event in failover.events.filter(event="started")]
    assert restored == [40, 40, 20]
    assert failover.state == State.COMPLETED


def test_the_restart_budget_ends_the_job_with_the_list_of_attempts(world: World) -> None:
    world.running_job(restart_budget=3)
    world.save(20)
    for _ in range(4):
        world.until(lambda: world.job().state in (Job.State.RUNNING, Job.State.FAILED))
        world.agents["n2"].rank_dies(1, 139)
        world.until(lambda: world.failover().ended_at is not None if Failover.objects.exists() else False)
        world.tick()
    assert Failover.objects.filter(state=State.COMPLETED).count() == 3
    job = world.job()
    assert job.state == Job.State.FAILED
    assert "budget of 3 is used up" in job.state_reason
    assert job.state_reason.count("exit-139") >= 3


def test_proven_progress_gives_the_budget_back(world: World) -> None:
    world.running_job(restart_budget=1)
    for step in (20, 40, 60):
        world.save(step)
        world.agents["n2"].rank_dies(1, 139)
        world.until(lambda: world.failover().ended_at is not None if Failover.objects.exists() else False)
        world.until(lambda: world.job().state in (Job.State.RUNNING, Job.State.FAILED))
        assert world.failover().state == State.COMPLETED


def test_a_worse_fault_replaces_a_restart_in_place(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: None
    world.agents["n3"].report("finding", {"code": "xid-31", "rank": 2, "evidence": "Xid 31"})
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.RESTORING)
    world.agents["n3"].report("finding", {"code": "xid-79", "rank": 2, "evidence": "Xid 79"}, epoch=world.job().epoch)
    for agent in world.agents.values():
        del agent.replies["restore"]
    failover = world.recover()
    first, second = Failover.objects.order_by("pk")
    assert (first.state, first.superseded_by) == (State.SUPERSEDED, second)
    assert failover.kind == "failover"
    assert [move["from"] for move in failover.moves] == ["n3"]
    assert Incident.objects.count() == 1


def test_a_job_that_ends_well_releases_its_nodes_and_standbys(world: World) -> None:
    world.running_job()
    for rank, name in enumerate(("n1", "n2", "n3")):
        world.agents[name].rank_dies(rank, 0)
    reports.process_new()
    assert world.job().state == Job.State.COMPLETED
    world.tick()
    for agent in world.agents.values():
        assert "release" in {order.kind for order in agent.heard_orders}


def _lose(world: World, *names: str) -> None:
    """Power nodes off; the others block in their collective until the recovery starts them again."""
    for agent in world.agents.values():
        agent.stepping = False
    for name in names:
        world.agents[name].power_off()
    world.until(lambda: Failover.objects.exists())
    for agent in world.agents.values():
        agent.stepping = True
