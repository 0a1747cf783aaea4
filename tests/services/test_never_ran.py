"""An epoch that was raised and in which nothing was started has no end: none is kept, and none is counted."""

import pytest
from django.contrib.auth.models import User

from reliability.models import AttemptEnd, Epoch, Failover, Job
from reliability.services import failovers, modes
from reliability.services.modes import Scope
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
GONE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus."


def find(world: World, name: str, code: str, evidence: str = GONE) -> None:
    """Report as a collector of a kernel log does: it knows of no job."""
    agent = world.agents[name]
    agent.job, job = "", agent.job
    agent.report("finding", {"code": code, "evidence": evidence, "count": 1})
    agent.job = job


def fences(world: World) -> User:
    """Have one node's fault begin a failover that waits for its ranks to stop."""
    for agent in world.agents.values():
        agent.replies["stop"] = lambda order: None
    find(world, "n1", "xid-79")
    world.until(Failover.objects.exists, seconds=3)
    person = approver()
    if world.failover().state == "awaiting_approval":
        failovers.approve(world.failover(), by=person, digest=world.failover().digest)
    world.until(lambda: world.failover().state == "fencing", seconds=3)
    return person


def taken_back(world: World) -> None:
    """Have two of three nodes show the same, so that the ranks start again where they are."""
    find(world, "n2", "xid-79")
    world.until(lambda: world.failover().kind == "restart_in_place", seconds=3)
    for agent in world.agents.values():
        del agent.replies["stop"]


@pytest.fixture
def world(bare_world: World) -> World:
    """Return three training nodes and a standby."""
    for name in ("n1", "n2", "n3"):
        bare_world.node(name, "training")
    bare_world.node("s1")
    bare_world.tick()
    return bare_world


def test_a_failover_that_was_taken_back_while_it_fenced_leaves_the_one_end_there_was(world: World) -> None:
    world.running_job(restart_budget=1)
    world.save(20)
    fences(world)
    assert (world.job().epoch, Epoch.objects.count()) == (2, 1)
    taken_back(world)
    assert world.recover(seconds=60).kind == "restart_in_place"
    assert list(AttemptEnd.objects.values_list("number", "counts")) == [(1, False)]
    world.agents["n3"].rank_dies(2, 139)
    world.until(lambda: world.failover().incident.code == "exit-139" and world.failover().ended_at is not None)
    assert world.job().state == Job.State.RUNNING, world.told()
    assert set(AttemptEnd.objects.values_list("number", flat=True)) <= set(
        Epoch.objects.values_list("number", flat=True)
    )


def test_what_is_found_after_a_person_refused_to_start_again_is_no_second_end_either(world: World) -> None:
    modes.set_mode(Scope(reach="code", name="xid-79"), mode="propose", by="ada", reason="to see how it does")
    world.running_job(restart_budget=1)
    world.save(20)
    person = fences(world)
    taken_back(world)
    assert world.failover().state == "awaiting_approval"
    failovers.reject(world.failover(), by=person, digest=world.failover().digest)
    world.tick()
    asked = Failover.objects.count()
    find(world, "n3", "xid-64", "NVRM: Xid (PCI:0000:3b:00): 64, pid=7, row remapper")
    world.until(lambda: Failover.objects.count() > asked, seconds=5)
    assert list(AttemptEnd.objects.values_list("number", "counts")) == [(1, False)]
