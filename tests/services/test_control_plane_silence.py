"""When our own side stops, no node is blamed: one incident of the control plane, nothing is moved."""

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import Failover, Finding, Incident, Job, Node
from reliability.services import clock, losses
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def away(world: World, seconds: float, *, controller: bool) -> None:
    """Let time pass in which nothing is taken in; what the agents say is lost, and their ranks go on."""
    for _ in range(int(seconds / 2)):
        world.pass_time(2)
        for agent in world.agents.values():
            agent.train()
        if controller:
            losses.look(clock.now())


@pytest.mark.parametrize("controller", [True, False])
def test_70_s_without_the_web_process_is_one_incident_and_no_nodes_fault(world: World, controller: bool) -> None:
    world.running_job()
    away(world, 70, controller=controller)
    for _ in range(20):
        world.tick(1.0)
    incident = Incident.objects.get()
    assert incident.code == "control-plane"
    assert incident.closed_at is not None
    assert not Finding.objects.exists()
    assert not Failover.objects.exists()
    assert world.job().state == Job.State.RUNNING
    assert set(Node.objects.values_list("health", flat=True)) == {NodeHealth.HEALTHY}


def test_a_restart_of_the_web_process_is_no_incident_at_all(world: World) -> None:
    world.running_job()
    away(world, 10, controller=True)
    for _ in range(5):
        world.tick(1.0)
    assert not Incident.objects.exists()


def test_each_time_it_was_away_is_told_once(world: World) -> None:
    for _ in range(2):
        away(world, 70, controller=True)
        for _ in range(5):
            world.tick(1.0)
    assert Incident.objects.filter(code="control-plane").count() == 2
    assert not Incident.objects.filter(closed_at=None).exists()
