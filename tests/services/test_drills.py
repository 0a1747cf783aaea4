"""Faults that a person makes on purpose."""

import pytest

from reliability.errors import DomainError, InvalidInput
from reliability.models import Drill, Node
from reliability.selectors import core
from reliability.services import drills
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


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
