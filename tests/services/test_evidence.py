"""What is evidence? Consequences wait for a cause, a dead container ends an attempt, finished ranks prove nothing."""

import pytest

from reliability.domain.failover import State
from reliability.models import Failover, Incident, Job, Rank
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _problem(world: World, name: str) -> None:
    body = {
        "snapshot_epoch": 1,
        "step": 10,
        "rank": 0,
        "tier": "storage",
        "code": "tier_unreachable",
        "message": "away",
    }
    world.agents[name].report("snapshot_problem", body | {"hint": ""}, epoch=world.job().epoch)


def test_an_old_observation_does_not_turn_a_lost_node_into_a_restart(world: World) -> None:
    world.running_job(approval="manual")
    world.save(20)
    _problem(world, "n1")
    world.tick(30)
    world.agents["n3"].power_off()
    for rank, name in enumerate(("n1", "n2")):
        world.agents[name].rank_dies(rank, 1, tail="ConnectionError: connection closed by peer")
    world.until(Failover.objects.exists)
    failover = world.failover()
    assert failover.kind == "failover", world.told()
    assert failover.state == State.AWAITING_APPROVAL
    assert failover.failed_node == world.agents["n3"].node


def test_a_container_that_dies_while_first_steps_are_awaited_ends_that_attempt_at_once(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    for agent in world.agents.values():
        agent.stepless = True
    world.agents["n3"].rank_dies(2, 139)
    world.until(lambda: Failover.objects.filter(state=State.VERIFYING).exists())
    epoch = world.job().epoch
    body = {"event": "die", "exit_code": 137, "oom_killed": False, "ordered": False, "name": "sk-lm-n3"}
    world.agents["n3"].report("container", body, epoch=epoch)
    world.until(lambda: world.job().epoch > epoch, seconds=5)


def test_ranks_that_finished_are_no_proof_that_a_silent_node_is_lost(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    world.agents["n3"].beating = False
    for rank, name in enumerate(("n1", "n2")):
        world.agents[name].rank_dies(rank, 0)
    world.tick(20)
    assert not Failover.objects.exists(), world.told()
    world.agents["n3"].beating = True
    world.agents["n3"].rank_dies(2, 0)
    world.until(lambda: world.job().state == Job.State.COMPLETED)
    assert set(Rank.objects.values_list("state", flat=True)) == {Rank.State.EXITED}


def _prints(world: World, name: str, rank: int, code: str, line: str) -> None:
    body = {"code": code, "rank": rank, "evidence": line, "count": 1, "source": "output"}
    world.agents[name].report("finding", body, epoch=world.job().epoch)


def test_a_line_that_a_running_rank_prints_is_noted_and_nothing_else(world: World) -> None:
    world.running_job(approval="automatic")
    for number in range(5):
        _prints(world, "n2", 1, "cuda-ecc", f"CUDA error: uncorrectable ECC error encountered, caught {number}")
        world.tick(10)
    assert [(each.action, each.closed_at) for each in Incident.objects.all()] == [("observe", None)]
    assert not Failover.objects.exists(), world.told()
    assert world.agents["n2"].node.health == "healthy"


def test_a_line_that_a_rank_printed_before_it_ended_says_why_it_did(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    _prints(world, "n2", 1, "cuda-ecc", "CUDA error: uncorrectable ECC error encountered")
    world.tick(5)
    world.agents["n2"].rank_dies(1, 1, tail="Traceback (most recent call last):")
    failover = world.recover()
    assert (failover.kind, failover.failed_node) == ("failover", world.agents["n2"].node), world.told()
    assert failover.incident.code == "cuda-ecc"


def test_a_line_that_another_rank_printed_accuses_nobody_when_one_ends(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    _prints(world, "n2", 1, "cuda-ecc", "CUDA error: uncorrectable ECC error encountered")
    world.agents["n3"].rank_dies(2, 1)
    failover = world.recover()
    assert (failover.kind, failover.moves) == ("restart_in_place", []), world.told()
