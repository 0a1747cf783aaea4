"""Whose silence is it: the node's own, or that of the control plane? And what when nobody else could tell?"""

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import Failover, Finding, Incident, Node
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _lone_job(world: World) -> None:
    world.node("n1", "training")
    for name in ("s1", "s2", "s3"):
        world.node(name)
    world.tick()
    world.running_job(nodes=1)


def test_the_lost_node_of_a_job_on_one_node_is_given_up_after_the_longer_grace(bare_world: World) -> None:
    _lone_job(bare_world)
    bare_world.agents["n1"].power_off()
    for _ in range(55):
        bare_world.tick(1.0)
    assert not Failover.objects.exists()
    bare_world.until(Failover.objects.exists, seconds=15, tick_s=1.0)
    assert "No other node of the job could tell more" in Finding.objects.get(code="node-lost").evidence
    failover = bare_world.recover(seconds=60)
    assert failover.state == "completed"
    assert (failover.created_at - failover.fault_at).total_seconds() > 55  # counted from the last that was heard


def test_nodes_that_are_gone_or_held_back_do_not_shield_a_node_that_is_lost_later(world: World) -> None:
    for name in ("x1", "x2", "x3", "x4", "x5", "x6"):
        world.node(name)
    world.tick()
    world.running_job()
    world.save(20)
    for name in ("x1", "x2", "x3"):
        world.agents[name].power_off()
        Node.objects.filter(name=name).update(health=NodeHealth.UNHEALTHY)
    for name in ("x4", "x5", "x6"):
        world.agents[name].power_off()
    for _ in range(40):
        world.tick(1.0)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(Failover.objects.exists, seconds=15)
    assert world.failover().failed_node == Node.objects.get(name="n3")


def test_silent_nodes_are_shown_as_such_while_the_control_plane_is_suspected_and_that_ends(world: World) -> None:
    world.running_job()
    world.save(20)
    lost = [agent for agent in world.agents.values() if agent.name != "s1"]
    for agent in lost:
        agent.power_off()
    world.agents["s1"].stepping = False
    for _ in range(10):
        world.tick(1.0)
    assert Incident.objects.get().code == "control-plane"
    assert Node.objects.get(name="n1").health == NodeHealth.UNREACHABLE
    assert not Failover.objects.exists()
    world.until(Failover.objects.exists, seconds=80, tick_s=2.0)
    assert Incident.objects.get(code="control-plane").closed_at is not None
