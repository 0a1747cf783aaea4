"""Planned times: what happens to a node in one is no fault, its job stays where it is, and no rank is forgotten."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from reliability.domain.health import NodeHealth
from reliability.errors import DomainError, InvalidInput
from reliability.models import Failover, Finding, Hold, Incident, Job, MaintenanceWindow, Node
from reliability.selectors import maintenance as planned
from reliability.selectors.node_pages import standby_lines
from reliability.services import clock, holds, jobs, losses, maintenance, nodes
from reliability.services.maintenance import Plan
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
GONE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus."


def plan(seconds: float = 600, *, start_s: float | None = None, **wanted: Any) -> MaintenanceWindow:
    now = clock.now()
    start = None if start_s is None else now + timedelta(seconds=start_s)
    base: dict[str, Any] = {"scope": "nodes", "reason": "new firmware", "starts_at": start}
    ends = (start or now) + timedelta(seconds=seconds)
    return maintenance.plan(Plan(**{**base, "ends_at": ends, **wanted}), by="ann")


def stand_still(world: World, *, away: str) -> None:
    for agent in world.agents.values():
        agent.stepping = False
    world.agents[away].power_off()


def go_on(world: World, *, back: str) -> None:
    for agent in world.agents.values():
        agent.stepping = True
    world.agents[back].power_on()


def moved() -> list[str]:
    return [change["from"] for each in Failover.objects.all() for change in each.moves]


def test_a_job_whose_node_restarts_as_planned_is_told_waits_and_goes_on_where_it_was(world: World) -> None:
    world.running_job()
    world.save(20)
    plan(nodes=["n3"])
    stand_still(world, away="n3")
    for name in ("n1", "n2"):
        world.agents[name].rank_dies({"n1": 0, "n2": 1}[name], 1, tail="ConnectionError: connection closed by peer")
    world.until(lambda: Incident.objects.filter(waits_until__isnull=False).exists(), seconds=30, tick_s=1.0)
    for _ in range(20):
        world.tick(2.0)
    assert not Failover.objects.exists()
    incident = Incident.objects.get()
    assert "stands still until n3 is back" in incident.events.get(kind="waiting").sentence
    assert "n3" in world.job().state_reason
    go_on(world, back="n3")
    assert world.recover(seconds=60).kind == "restart_in_place"
    assert moved() == []


def test_the_silence_of_a_planned_node_is_told_once_when_its_job_stands_still_and_blames_nobody(world: World) -> None:
    world.running_job()
    plan(nodes=["n3"])
    stand_still(world, away="n3")
    for _ in range(30):
        world.tick(1.0)
    told = Incident.objects.get()
    assert (told.code, told.action) == ("node-lost", "observe")
    assert "In planned maintenance (new firmware)" in told.reasons[0]
    assert not Finding.objects.filter(code="agent-silent").exists()
    assert not Failover.objects.exists()


def test_a_node_that_stays_away_after_its_planned_time_is_lost_from_then_on(world: World) -> None:
    world.running_job()
    world.save(20)
    window = plan(60, nodes=["n3"])
    stand_still(world, away="n3")
    world.until(lambda: clock.now() >= window.ends_at + timedelta(seconds=5), seconds=90, tick_s=1.0)
    assert not Failover.objects.exists()
    world.until(Failover.objects.exists, seconds=10, tick_s=1.0)
    assert world.failover().kind == "failover"


def test_ending_a_planned_time_early_gives_the_node_up(world: World) -> None:
    world.running_job()
    world.save(20)
    window = plan(nodes=["n3"])
    stand_still(world, away="n3")
    for _ in range(15):
        world.tick(1.0)
    maintenance.end(window, by="bo")
    world.until(Failover.objects.exists, seconds=15, tick_s=1.0)
    window.refresh_from_db()
    assert (window.ended_by, window.ends_at < window.planned_until) == ("bo", True)
    with pytest.raises(DomainError, match="is over"):
        maintenance.end(window, by="bo")


def test_214_of_288_nodes_that_restart_as_planned_are_no_incident_and_not_the_control_planes(bare_world: World) -> None:
    now = clock.now()
    rows = [
        Node(
            name=f"r{number}",
            address="10.0.0.1",
            runtime="process",
            health=NodeHealth.HEALTHY,
            failure_domain="row-1" if number < 214 else "row-2",
            registered_at=now,
            last_seen_at=now,
        )
        for number in range(288)
    ]
    Node.objects.bulk_create(rows)
    bare_world.node("live")
    plan(scope="domain", domain="row-1")
    for _ in range(8):
        bare_world.pass_time(2)
        Node.objects.exclude(failure_domain="row-1").update(last_seen_at=clock.now())
        bare_world.tick(0.1, reconcile_too=False)
        losses.look(clock.now())
    assert nodes.suspected(clock.now(), now) == 0
    assert not Incident.objects.exists()
    assert not Hold.objects.exists()
    assert Node.objects.filter(health=NodeHealth.UNREACHABLE).count() == 214


def test_faults_of_a_planned_node_are_kept_and_not_held_against_it(world: World) -> None:
    world.running_job()
    plan(nodes=["s1", "n1"])
    for name in ("s1", "n1"):
        world.agents[name].report("finding", {"code": "xid-79", "evidence": GONE, "count": 1})
    world.tick(1)
    assert set(Incident.objects.values_list("action", flat=True)) == {"observe"}
    assert not Failover.objects.exists()
    assert not Hold.objects.exists()


def test_a_standby_in_a_planned_time_is_not_chosen_and_the_reason_is_shown(world: World) -> None:
    world.running_job(approval="manual")
    world.save(20)
    plan(nodes=["s1"])
    world.agents["n3"].report("finding", {"code": "xid-79", "evidence": GONE, "count": 1})
    world.until(Failover.objects.exists, seconds=5)
    proposal = world.failover().proposal
    assert [move["to"] for move in proposal["moves"]] == ["s2"]
    passed_over = next(each for each in proposal["candidates"] if each["node"] == "s1")
    assert "planned maintenance until" in passed_over["reasons"][0]


def test_a_job_is_not_placed_on_nodes_that_are_planned_away(world: World) -> None:
    plan(scope="all")
    job = world.submit()
    jobs.start(job, by="ann")
    world.tick(1)
    assert world.job().state == Job.State.PENDING


def test_overlapping_times_each_mute_what_they_say(world: World) -> None:
    first = plan(100, nodes=["n1"], stay=False, quiet=False)
    second = plan(100, start_s=50, nodes=["n1", "n2"], observe=False, stay=False)
    other = plan(100, nodes=["n3"])
    assert maintenance.overlapping(first) == [second]
    assert planned.state_of(second, clock.now()) == "planned"
    node = Node.objects.get(name="n1")
    assert planned.of_node(node, clock.now()) == [first, second]
    assert planned.current(clock.now()) == {node.pk: [first], Node.objects.get(name="n3").pk: [other]}
    maintenance.end(second, by="bo")
    assert maintenance.overlapping(first) == []


def test_a_plan_that_makes_no_sense_is_refused_by_name(world: World) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"nodes": []}, "nodes"),
        ({"nodes": ["nobody"]}, "nodes"),
        ({"scope": "domain", "domain": "row-9"}, "domain"),
        ({"scope": "galaxy"}, "scope"),
        ({"nodes": ["n1"], "reason": " "}, "reason"),
        ({"nodes": ["n1"], "observe": False, "stay": False, "quiet": False}, "observe"),
        ({"nodes": ["n1"], "start_s": -3600}, "starts_at"),
        ({"nodes": ["n1"], "seconds": -1}, "ends_at"),
        ({"nodes": ["n1"], "seconds": 15 * 86400}, "ends_at"),
        ({"nodes": ["n1"], "start_s": 400 * 86400}, "starts_at"),
    ]
    for wanted, field in refused:
        with pytest.raises(InvalidInput) as caught:
            plan(**wanted)
        assert caught.value.field == field
        assert caught.value.hint


def test_a_standby_in_a_planned_time_is_not_called_ready(world: World) -> None:
    world.until(lambda: all(line.ready for line in standby_lines(Node.objects.all(), busy=())))
    plan(nodes=["s1"])
    MaintenanceWindow.objects.update(starts_at=timezone.now() - timedelta(hours=1))  # pages go by the real clock
    ready = {line.node.name: (line.ready, line.usable) for line in standby_lines(Node.objects.all(), busy=())}
    assert ready == {"s1": (False, False), "s2": (True, True)}


def test_a_job_that_waits_for_nodes_says_what_keeps_each_of_them(world: World) -> None:
    world.running_job()
    plan(nodes=["s1"])
    held = holds.hold(Node.objects.get(name="s2"), owner="ann", reason="Its fan is changed.")
    other = world.submit("small", nodes=1)
    jobs.start(other, by="ann")
    world.tick()
    told = world.job("small").state_reason
    assert told.startswith("Waiting for nodes: 0 of 1 are free, healthy and run process. Not free: s1 is in planned ")
    assert " UTC, s2 is held (Its fan is changed), n1 has a slot of lm, " in told
    holds.release_hold(held, by="ann")
    world.tick()
    assert world.job("small").state == Job.State.STARTING
