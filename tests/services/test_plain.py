"""Plain programs: they tell of no step, so that their life is the proof that they run."""

import pytest

from reliability.domain.failover import State
from reliability.models import Job, Rank
from reliability.services import jobs
from reliability.services.launch import PLAIN_SETTLED_S
from tests.services.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def plain(world: World) -> Job:
    """A plain program on three nodes, asked to start."""
    for agent in world.agents.values():
        agent.stepless = True
    job = world.submit(mode="plain", program=["sh", "-c", "work"])
    jobs.start(job, by="ann")
    return job


def test_a_plain_program_runs_once_it_has_lived_long_enough(world: World, plain: Job) -> None:
    world.tick(PLAIN_SETTLED_S - 1)
    assert world.job().state == Job.State.STARTING
    world.until(lambda: world.job().state == Job.State.RUNNING, seconds=2 * PLAIN_SETTLED_S)
    assert not Rank.objects.exclude(state=Rank.State.RUNNING, first_step_epoch=1).exists()


@pytest.mark.slow
def test_a_plain_program_that_ends_is_started_again_and_is_verified_by_living(world: World, plain: Job) -> None:
    world.until(lambda: world.job().state == Job.State.RUNNING)
    world.agents["n2"].rank_dies(1, 1, tail="no such file: data.bin")
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert failover.attempt == 1
    assert world.job().state == Job.State.RUNNING
    world.tick(300)
    assert world.job().epoch == 2


def test_a_plain_program_that_ends_at_once_is_never_called_running(world: World, plain: Job) -> None:
    world.until(lambda: len(world.starts()) == 3)
    world.agents["n2"].rank_dies(1, 1)
    world.tick()
    world.until(lambda: world.job().epoch == 2)
    assert Rank.objects.get(rank=1).first_step_epoch != 1


def test_a_silent_node_is_no_proof_that_its_plain_program_runs(world: World, plain: Job) -> None:
    world.until(lambda: len(world.starts()) == 3)
    world.agents["n2"].beating = False
    world.tick(PLAIN_SETTLED_S + 0.5)
    world.tick()
    assert Rank.objects.get(rank=0).first_step_epoch == 1
    assert Rank.objects.get(rank=1).first_step_epoch == 0


def test_a_plain_job_that_finished_is_complete(world: World, plain: Job) -> None:
    world.until(lambda: world.job().state == Job.State.RUNNING)
    for rank, name in enumerate(("n1", "n2", "n3")):
        world.agents[name].rank_dies(rank, 0)
    world.until(lambda: world.job().state == Job.State.COMPLETED)
