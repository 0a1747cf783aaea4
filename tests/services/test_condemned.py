"""Where a person is asked, only the person's word makes a node bad; a no leaves it as it was."""

from collections.abc import Callable

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import Failover, Job, Node, Quarantine
from reliability.services import failovers, modes, nodes
from reliability.services.modes import Scope
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."


def by_rule(world: World) -> None:
    modes.set_mode(Scope(reach="code", name="xid-79"), mode="propose", by="ada", reason="to see how it does")
    world.running_job(nodes=2)


def by_job(world: World) -> None:
    world.running_job(nodes=2, approval="manual")


def _asked(world: World, start: Callable[[World], None]) -> Failover:
    """Return the request to replace n1, whose GPU fell off the bus."""
    start(world)
    world.save(20)
    world.agents["n1"].report("finding", {"code": "xid-79", "evidence": XID, "count": 1})
    for _ in range(6):
        world.tick(0.5)
    failover = world.failover()
    assert (failover.state, failover.failed_node) == ("awaiting_approval", world.agents["n1"].node)
    return failover


@pytest.mark.parametrize("start", [by_rule, by_job])
def test_a_request_condemns_no_node_before_a_person_approves_it(world: World, start: Callable[[World], None]) -> None:
    request = _asked(world, start)
    assert not Quarantine.objects.exists()
    assert world.agents["n1"].node.health == NodeHealth.DEGRADED
    failovers.approve(request, by=approver(), digest=request.digest)
    assert Quarantine.objects.get().node == world.agents["n1"].node
    assert world.agents["n1"].node.health == NodeHealth.UNHEALTHY
    world.recover()
    assert Quarantine.objects.get().released_at is None
    assert not Job.objects.get().slots.filter(node__name="n1").exists()


@pytest.mark.parametrize("start", [by_rule, by_job])
@pytest.mark.parametrize("decide", ["reject", "cancel"])
def test_after_a_persons_no_the_node_is_as_it_was_and_another_fault_does_not_move_its_slot(
    world: World, start: Callable[[World], None], decide: str
) -> None:
    request, ada = _asked(world, start), approver()
    if decide == "cancel":
        failovers.cancel(request, by=ada)
    else:
        failovers.reject(request, by=ada, digest=request.digest)
    for _ in range(35):
        world.tick(1)
    assert not Quarantine.objects.exists()
    assert Node.objects.get(name="n1").health == NodeHealth.HEALTHY
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: world.failover().pk > request.pk, seconds=10)
    assert (world.failover().kind, world.failover().proposal["moves"]) == ("restart_in_place", [])


def test_a_no_after_the_mode_became_propose_lifts_what_automation_had_put_on_the_node(world: World) -> None:
    request = _asked(world, by_job)
    nodes.mark_unhealthy(world.agents["n1"].node, request.incident)
    failovers.reject(request, by=approver(), digest=request.digest)
    assert Quarantine.objects.get().released_at is not None
    assert world.agents["n1"].node.health != NodeHealth.UNHEALTHY
