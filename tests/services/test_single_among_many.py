"""A fault of one node is dealt with whatever many others show, whatever policy says of another class, and by hand."""

import pytest
from django.contrib.auth.models import Permission, User

from reliability.domain.health import NodeHealth
from reliability.models import Decision, Failover, Incident, Job, Node
from reliability.services import by_hand, modes
from reliability.services.modes import Scope
from tests.services.test_blast_radius import find
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
LINK = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
MEMORY = "NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python3, DBE (double bit error)"
NAMES = ("n1", "n2", "n3", "n4")


def four(world: World, **spec: object) -> World:
    """Start a job on four nodes, with two standbys."""
    for name in NAMES:
        world.node(name, "training")
    world.node("s1")
    world.node("s2")
    world.tick()
    world.running_job(nodes=4, **spec)
    world.save(20)
    return world


def hold_back(world: World) -> Incident:
    """Three of four nodes lose a GPU at once while their ranks go on."""
    for name in ("n1", "n2", "n3"):
        find(world, name, "xid-79")
    world.tick()
    incident = Incident.objects.get()
    assert (incident.held_back, incident.meanwhile) == (True, "observe")
    return incident


def steps(world: World, *, on: bool) -> None:
    """Have the ranks of all nodes make steps, or none."""
    for agent in world.agents.values():
        agent.stepping = on


def moved() -> set[str]:
    completed = Failover.objects.filter(state="completed")
    return {change["from"] for each in completed for change in each.moves}


def bad() -> set[str]:
    return set(Node.objects.filter(health=NodeHealth.UNHEALTHY).values_list("name", flat=True))


def test_a_node_that_is_lost_while_others_are_held_back_is_replaced_alone(bare_world: World) -> None:
    world = four(bare_world)
    incident = hold_back(world)
    world.tick(60)
    world.agents["n4"].power_off()
    steps(world, on=False)
    world.until(Failover.objects.exists)
    steps(world, on=True)
    world.until(lambda: Failover.objects.filter(state="completed", kind="failover").exists(), seconds=60)
    assert (moved(), bad()) == ({"n4"}, set())
    incident.refresh_from_db()
    assert (incident.code, incident.held_back) == ("node-lost", False)
    assert incident.events.filter(kind="raised", sentence__contains="Not held back any more").exists()


def test_a_bad_node_supersedes_the_restart_of_what_is_held_back_and_the_rest_still_waits_the_next_time(
    bare_world: World,
) -> None:
    world = four(bare_world)
    hold_back(world)
    steps(world, on=False)
    world.agents["n1"].rank_dies(0, 137)
    world.until(lambda: Failover.objects.filter(kind="restart_in_place", state="verifying").exists())
    find(world, "n4", "xid-48", MEMORY)
    find(world, "n1", "xid-79")
    world.tick()
    assert Failover.objects.order_by("pk")[0].state == "superseded"
    assert bad() == {"n4"}
    steps(world, on=True)
    world.until(lambda: Failover.objects.filter(state="completed", kind="failover").exists(), seconds=60)
    assert (moved(), bad()) == ({"n4"}, {"n4"})
    world.tick(10)
    for name in ("n1", "n2", "n3"):
        find(world, name, "xid-79")
    world.agents["n1"].rank_dies(0, 137)
    world.until(lambda: world.job().state == Job.State.WAITING)
    held = Incident.objects.order_by("-pk")[0]
    assert (held.held_back, held.meanwhile, bad()) == (True, "hold", {"n4"})


def test_a_policy_that_holds_for_one_class_leaves_another_nodes_fault_to_be_dealt_with(bare_world: World) -> None:
    world = four(bare_world, class_actions={"network": "hold"})
    find(world, "n1", "sxid-20034", LINK)
    find(world, "n2", "xid-79")
    world.agents["n2"].rank_dies(1, 137)
    assert world.recover(seconds=60).state == "completed"
    assert (moved(), bad()) == ({"n2"}, {"n2"})


def test_what_a_person_has_done_by_hand_is_not_withdrawn_by_what_many_show(bare_world: World) -> None:
    modes.set_mode(Scope(reach="code", name="xid-48"), mode="shadow", by="ada", reason="to see how it does")
    world = four(bare_world)
    hold_back(world)
    find(world, "n4", "xid-48", MEMORY)
    world.tick()
    assert Incident.objects.get().held_back
    olga = User.objects.create_user("olga")
    olga.user_permissions.set(Permission.objects.filter(codename="operate_job"))
    request = by_hand.carry_out(Decision.objects.get(code="xid-48"), by=User.objects.get(pk=olga.pk))
    assert request is not None
    for name in ("n1", "n2", "n3"):
        find(world, name, "xid-79")
        world.tick(2)
    request.refresh_from_db()
    assert (request.state, [change["from"] for change in request.proposal["moves"]]) == ("awaiting_approval", ["n4"])
    incident = Incident.objects.get()
    assert (incident.held_back, incident.code, incident.node) == (False, "xid-48", world.agents["n4"].node)
