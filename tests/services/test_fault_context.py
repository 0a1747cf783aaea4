"""Faults as the services judge them: with what was found before, earlier attempts, and what people set."""

import pytest

from reliability.models import Failover, Finding, Hold, Incident, Job
from reliability.services import fault_codes
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
SHADER = (
    "NVRM: Xid (PCI:0000:3b:00): 13, pid={pid}, name=python3, Graphics SM Warp Exception on (GPC {gpc}, TPC 3, SM 1): "
    "Out Of Range Address"
)
GONE = "NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=python3, GPU has fallen off the bus."
WRONG = "NVRM: Xid (PCI:0000:37:00): 95, pid={pid}, Uncontained: FBHUB. RST: Yes, D-RST: No"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"


def find(world: World, name: str, code: str, evidence: str, count: int = 1) -> None:
    world.agents[name].report("finding", {"code": code, "evidence": evidence, "count": count})


def recovered(world: World, number: int) -> None:
    """Let time pass until so many recoveries are over."""
    world.until(lambda: Failover.objects.exclude(ended_at=None).count() == number, seconds=60)


def stand_still(world: World, *, at: int) -> None:
    """Have every rank at one step, and known to be there."""
    for agent in world.agents.values():
        agent.stepping, agent.ranks = False, dict.fromkeys(agent.ranks, at)
    world.tick(1)


def test_the_same_part_of_a_gpu_hit_in_three_attempts_moves_the_job_away(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    for turn in range(2):
        find(world, "n1", "xid-13", SHADER.format(pid=turn, gpc=2))
        recovered(world, turn + 1)
        assert world.failover().kind == "restart_in_place"
        world.tick(30)
    find(world, "n1", "xid-13", SHADER.format(pid=9, gpc=2))
    world.until(lambda: Failover.objects.count() == 3)
    last = Failover.objects.order_by("-id")[0]
    assert (last.kind, last.failed_node) == ("failover", world.agents["n1"].node)
    assert last.incident.fault_class == "hardware"
    assert "3 times within 24 h on the same unit" in last.incident.reasons[0]


def test_the_same_end_at_the_same_step_on_another_node_stops_the_job_and_moves_nothing(world: World) -> None:
    job = world.running_job(approval="automatic")
    world.save(20)
    for _ in range(40):
        world.tick()
    step = world.agents["n1"].ranks[0]
    stand_still(world, at=step)
    world.agents["n1"].rank_dies(0, 1, tail=ASSERT)
    for agent in world.agents.values():
        agent.stepping = True
    recovered(world, 1)
    assert world.failover().kind == "restart_in_place"
    stand_still(world, at=step)
    world.agents["n2"].rank_dies(1, 1, tail=ASSERT)
    world.until(lambda: world.job().state == Job.State.WAITING, seconds=20)
    held = Incident.objects.filter(job=job).order_by("-id")[0]
    assert (held.action, held.fault_class) == ("hold", "application"), held.reasons
    assert "Same step, two nodes" in held.reasons[0]
    assert Failover.objects.count() == 1


def test_a_flood_with_one_other_line_is_two_incidents_with_the_right_counts(world: World) -> None:
    for number in range(4):
        find(world, "s1", "xid-95", WRONG.format(pid=number), count=10_000)
    find(world, "s1", "xid-79", GONE.format(pid=7))
    find(world, "s1", "xid-95", WRONG.format(pid=8), count=10_000)
    world.tick(1)
    counts = {each.code: sum(each.findings.values_list("count", flat=True)) for each in Incident.objects.all()}
    assert counts == {"xid-95": 50_000, "xid-79": 1}
    assert Finding.objects.count() == 2


def test_a_condition_of_an_idle_node_ends_by_itself_and_is_opened_again_when_it_is_back(world: World) -> None:
    down, up = (f"mlx5_core 0000:9f:00.0 enp159s0f0np0: Link {way}" for way in ("down", "up"))
    find(world, "s1", "link-down", down)
    world.tick(1)
    find(world, "s1", "link-up", up)
    world.tick(1)
    incident = Incident.objects.get(code="link-down")
    assert incident.close_reason == "It ended by itself (link-up)."
    world.tick(70)
    find(world, "s1", "link-down", down)
    world.tick(1)
    incident = Incident.objects.get(code="link-down")
    assert (incident.closed_at, incident.findings.count()) == (None, 3)
    assert not Hold.objects.filter(reason__contains="link-down").exists()


def test_what_a_person_set_holds_for_what_is_found_from_then_on(world: World) -> None:
    fault_codes.change("xid-79", values={"action": "observe"}, by="ada", reason="bad sensor")
    find(world, "s1", "xid-79", GONE.format(pid=7))
    world.tick(1)
    assert Incident.objects.get().action == "observe"
    assert not Hold.objects.filter(reason__contains="xid-79").exists()


def test_reports_are_still_counted_once_when_they_are_sent_twice(world: World) -> None:
    answer = world.agents["s1"].report(
        "finding", {"code": "xid-95", "evidence": WRONG.format(pid=1), "count": 3}, seq=900
    )
    again = world.agents["s1"].report(
        "finding", {"code": "xid-95", "evidence": WRONG.format(pid=1), "count": 3}, seq=900
    )
    assert [each["status"] for each in (*answer, *again)] == ["accepted", "duplicate"]
    world.tick(1)
    assert Finding.objects.get().count == 3


def test_a_burst_of_teardown_codes_beside_a_job_that_goes_on_restarts_nothing(world: World) -> None:
    world.running_job(approval="automatic")
    for name in ("n1", "n2", "n3"):
        find(
            world, name, "xid-45", f"NVRM: Xid (PCI:0000:9b:00): 45, pid=7, name=python3, Ch 0000000{name[1]}", count=8
        )
    world.tick(1)
    assert not Incident.objects.exists()
    for _ in range(30):
        world.tick(1)
    assert not Failover.objects.exists()
    assert Incident.objects.get().action == "observe"
