"""Periods that a person applies, and faults that a person makes."""

import pytest

from reliability.domain.planner import FirstOrderInputs
from reliability.errors import DomainError, InvalidInput
from reliability.models import Drill, Node, Rank
from reliability.selectors import core
from reliability.services import clock, drills, plans
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
INPUTS = FirstOrderInputs(save_stall_s=0.1, mtbf_s=3600.0, recovery_s=5.0, target=0.95)


def test_a_period_is_applied_ahead_of_the_newest_step_and_told_to_every_node(world: World) -> None:
    world.running_job()
    for _ in range(10):
        world.tick()
    job = world.job()
    newest = max(rank.step or 0 for rank in job.ranks.all())
    plan = plans.apply(job, inputs=INPUTS, by="ann")
    assert plan.from_step >= newest + 30  # at least 3 s of steps of 0.1 s
    job.refresh_from_db()
    assert job.period_plan == [
        {"from_step": 0, "every_steps": 20},
        {"from_step": plan.from_step, "every_steps": plan.every_steps},
    ]
    world.tick()
    told = [order for agent in world.agents.values() for order in agent.heard_orders if order.kind == "set_period"]
    assert {order.node for order in told} == {"n1", "n2", "n3"}
    assert not plans.taken_over(plan)
    Rank.objects.update(plan_version=plan.version)
    assert plans.taken_over(plan)


def test_a_job_whose_speed_is_unknown_cannot_be_planned(world: World) -> None:
    with pytest.raises(DomainError, match="speed"):
        plans.apply(world.submit(), inputs=INPUTS, by="ann")


def test_defaults_of_the_planner_are_measured_and_name_their_source(world: World) -> None:
    job = world.running_job()
    world.save(20)
    world.tick()
    defaults = core.planner_defaults(job, now=clock.now())
    assert defaults["save_stall_s"] == {"value": 0.02, "source": "median of 3 saves to memory"}
    assert defaults["step_s"]["value"] == pytest.approx(0.1)
    assert defaults["recovery_s"]["value"] is None
    assert "no fault" in defaults["mtbf_s"]["source"]
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    defaults = core.planner_defaults(world.job(), now=clock.now())
    assert defaults["recovery_s"]["value"] > 0
    assert "1 fault(s)" in defaults["mtbf_s"]["source"]


def test_a_drill_is_linked_to_the_recovery_it_caused_and_keeps_its_times(world: World) -> None:
    job = world.running_job()
    world.save(20)
    drill = drills.start(job, node=Node.objects.get(name="n2"), what="kill_rank", by="ann")
    world.tick()
    assert world.agents["n2"].heard_orders[-1].payload["rank"] == 1
    world.agents["n2"].rank_dies(1, 137)
    failover = world.recover()
    world.tick()
    drill.refresh_from_db()
    assert drill.failover == failover
    assert drill.state == Drill.State.RECOVERED
    assert [stage for stage, _ in drill.result["stages"]] == list(core.STAGES)
    assert failover.ended_at is not None
    took = (failover.ended_at - drill.started_at).total_seconds()
    assert drill.result["seconds"] == pytest.approx(took)
    assert sum(seconds for _, seconds in drill.result["stages"]) == pytest.approx(took)


def test_a_drill_that_is_found_out_late_counts_from_its_start(world: World) -> None:
    job = world.running_job()
    world.save(20)
    drill = drills.start(job, node=Node.objects.get(name="n2"), what="kill_node", by="ann")
    world.tick()
    for _ in range(10):
        world.tick(0.5)
    world.agents["n2"].rank_dies(1, 137)  # told only when the agent is back
    failover = world.recover()
    world.tick()
    drill.refresh_from_db()
    assert drill.result["seconds"] > 5 + (failover.ended_at - failover.created_at).total_seconds()  # type: ignore[operator]


def test_stopped_heartbeats_leave_training_unharmed(world: World) -> None:
    job = world.running_job()
    drill = drills.start(job, node=Node.objects.get(name="n2"), what="stop_heartbeats", by="ann")
    world.tick()
    world.agents["n2"].beating = False
    for _ in range(26):
        world.tick(0.5)
    world.agents["n2"].beating = True
    for _ in range(6):
        world.tick(0.5)
    drill.refresh_from_db()
    assert drill.state == Drill.State.UNHARMED


def test_a_drill_that_the_node_cannot_do_fails_with_its_words(world: World) -> None:
    job = world.running_job()
    error = {"code": "failed", "message": "There is no such rank.", "hint": ""}
    world.agents["n2"].replies["drill"] = lambda order: {"status": "failed", "error": error}
    drill = drills.start(job, node=Node.objects.get(name="n2"), what="kill_rank", by="ann")
    world.tick()
    drill.refresh_from_db()
    assert (drill.state, drill.result["reason"]) == (Drill.State.FAILED, "There is no such rank.")


def test_a_drill_needs_a_running_job_and_one_of_its_nodes(world: World) -> None:
    job = world.running_job()
    with pytest.raises(InvalidInput, match="no slot"):
        drills.start(job, node=Node.objects.get(name="s1"), what="kill_rank", by="ann")
    with pytest.raises(InvalidInput, match="no drill"):
        drills.start(job, node=Node.objects.get(name="n1"), what="explode", by="ann")
    drills.start(job, node=Node.objects.get(name="n1"), what="kill_rank", by="ann")
    with pytest.raises(DomainError, match="going on"):
        drills.start(job, node=Node.objects.get(name="n2"), what="kill_rank", by="ann")
