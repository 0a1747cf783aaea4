"""The same on many nodes at once is one event: nothing is moved, nobody is blamed, and a person may release it."""

import pytest

from reliability.domain.health import NodeHealth
from reliability.errors import DomainError
from reliability.models import Failover, Hold, Incident, Job, Node
from reliability.services import cluster_incidents, incidents
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
GONE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus."
CONTAINED = "NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name=python3, Ch 00000008"
TEARDOWN = "NVRM: Xid (PCI:0000:{gpu:02x}:00): 45, pid=7, name=python3, Ch 0000000{gpu}"


def find(world: World, name: str, code: str, evidence: str = GONE, count: int = 1) -> None:
    """Report as a collector of a kernel log does: it knows of no job."""
    agent = world.agents[name]
    agent.job, job = "", agent.job
    agent.report("finding", {"code": code, "evidence": evidence, "count": count})
    agent.job = job


def tear_down(world: World, *names: str) -> None:
    for name in names:
        for gpu in range(8):
            find(world, name, "xid-45", TEARDOWN.format(gpu=gpu))


def healthy() -> set[str]:
    return set(Node.objects.filter(health__in=(NodeHealth.HEALTHY, NodeHealth.UNKNOWN)).values_list("name", flat=True))


@pytest.fixture
def four(bare_world: World) -> World:
    """Return four nodes with a job and two standbys."""
    for name in ("n1", "n2", "n3", "n4"):
        bare_world.node(name, "training")
    bare_world.node("s1")
    bare_world.node("s2")
    bare_world.tick()
    bare_world.running_job(nodes=4)
    bare_world.save(20)
    return bare_world


def test_a_cause_and_the_teardown_codes_of_its_job_are_one_incident_of_one_node(four: World) -> None:
    find(four, "n1", "xid-94", CONTAINED)
    four.tick(5)
    tear_down(four, "n1", "n2", "n3", "n4")
    four.tick(5)
    incident = Incident.objects.get()
    assert (incident.code, incident.node, incident.held_back) == ("xid-94", four.agents["n1"].node, False)
    assert incident.findings.count() == 33
    assert healthy() >= {"n2", "n3", "n4"}
    four.recover()
    assert {each.kind for each in Failover.objects.all()} == {"restart_in_place"}


def test_teardown_codes_everywhere_and_a_plain_end_are_the_programs(four: World) -> None:
    tear_down(four, "n1", "n2", "n3", "n4")
    four.agents["n1"].rank_dies(0, 1, tail="ValueError: bad shape")
    four.until(Failover.objects.exists)
    incident = Incident.objects.get()
    assert (incident.fault_class, incident.action) == ("application", "restart_in_place")
    assert healthy() >= {"n1", "n2", "n3", "n4"}


def test_teardown_codes_of_one_crashed_job_flag_none_of_its_77_nodes(bare_world: World) -> None:
    for number in range(77):
        bare_world.node(f"n{number}", "training")
    bare_world.tick()
    bare_world.running_job(nodes=77)
    bare_world.agents["n0"].rank_dies(0, 1, tail="ValueError: bad shape")
    for number in range(77):
        find(bare_world, f"n{number}", "xid-45", TEARDOWN.format(gpu=1), count=9)
    bare_world.tick()
    assert len(healthy()) == 77
    assert not Hold.objects.exists()
    assert Incident.objects.get().fault_class == "application"


def test_a_failover_that_was_proposed_before_all_nodes_showed_it_is_taken_back(four: World) -> None:
    Job.objects.update(approval="manual")
    find(four, "n1", "xid-79")
    four.until(Failover.objects.exists, seconds=3)
    assert four.failover().kind == "failover"
    find(four, "n2", "xid-79")
    find(four, "n3", "xid-79")
    four.tick()
    incident = Incident.objects.get()
    assert incident.held_back
    assert incident.closed_at is None
    assert "3 of 4 nodes of the job" in incident.summary
    assert four.failover().state == "cancelled"
    assert healthy() >= {"n1", "n2", "n3"}
    four.tick()
    assert four.job().state == Job.State.RUNNING
    four.agents["n2"].rank_dies(1, 137)
    four.until(lambda: Failover.objects.filter(state="completed").exists())
    assert four.failover().kind == "restart_in_place"
    assert {slot.node.name for slot in four.job().slots.all() if slot.node} == {"n1", "n2", "n3", "n4"}


def test_a_failover_that_fences_already_becomes_a_restart_where_it_was(four: World) -> None:
    for agent in four.agents.values():
        agent.replies["stop"] = lambda order: None
    find(four, "n1", "xid-79")
    four.until(lambda: Failover.objects.filter(state="fencing").exists(), seconds=3)
    find(four, "n2", "xid-79")
    find(four, "n3", "xid-79")
    four.tick()
    assert Failover.objects.order_by("pk")[0].state == "superseded"
    for agent in four.agents.values():
        del agent.replies["stop"]
    assert four.recover(seconds=60).kind == "restart_in_place"
    assert not any(move for each in Failover.objects.all() for move in each.moves)


def test_what_is_held_back_again_after_a_restart_waits_for_a_person_who_may_release_it(four: World) -> None:
    for turn in range(2):
        for name in ("n1", "n2", "n3"):
            find(four, name, "xid-79")
        four.agents["n1"].rank_dies(0, 137)
        four.until(lambda wanted=turn + 1: Incident.objects.count() == wanted)
        if turn == 0:
            four.recover()
            four.tick(10)
    four.until(lambda: four.job().state == Job.State.WAITING)
    held = Incident.objects.order_by("-pk")[0]
    assert (held.held_back, held.meanwhile) == (True, "hold")
    incidents.release_of_job(held, by="ada", note="the row lost its power")
    held.refresh_from_db()
    assert held.released_by == "ada"
    assert {change["from"] for change in four.failover().proposal["moves"]} == {"n1", "n2", "n3"}
    with pytest.raises(DomainError, match="held back"):
        incidents.release_of_job(held, by="ada", note="")


def test_idle_nodes_that_show_the_same_are_one_incident_and_none_is_held(bare_world: World) -> None:
    for number in range(10):
        bare_world.node(f"n{number}")
    bare_world.tick()
    for number in range(3):
        find(bare_world, f"n{number}", "xid-79")
        bare_world.tick()
    assert Hold.objects.filter(released_at=None).count() == 3
    for number in range(3, 7):
        find(bare_world, f"n{number}", "xid-79")
    bare_world.tick()
    incident = Incident.objects.get(closed_at=None)
    assert (incident.node, incident.held_back, incident.findings.count()) == (None, True, 7)
    assert "7 of 10 nodes of the cluster" in incident.summary
    assert not Hold.objects.filter(released_at=None).exists()
    assert len(healthy()) == 10
    cluster_incidents.release(incident, by="ada", note="")
    assert Hold.objects.filter(released_at=None).count() == 7
    assert len(healthy()) == 3
