"""Bad hardware is known again under any name, and never takes the others with it."""

from typing import Any

import pytest

from reliability.domain.health import NodeHealth
from reliability.errors import DomainError, InvalidInput
from reliability.models import Hold, Incident, Node, NodeEvent, Quarantine
from reliability.selectors import offenders, quarantined, standbys
from reliability.services import beats, clock, nodes, quarantine, validations
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
BOARD = {"board_serial": "PF2K9ABC", "macs": ["aa:bb:cc:00:11:22"], "cpu_model": "EPYC 9654"}
GPUS = {"gpu_uuids": ["GPU-8f6d2f3e-0a51", "GPU-77aa01bc-9911"]}
WORN = {"code": "xid-79", "evidence": "GPU has fallen off the bus", "count": 1}


def health(name: str) -> tuple[str, str]:
    found = Node.objects.get(name=name)
    return found.health, found.health_reason


def goes_bad(world: World, name: str) -> Quarantine:
    """Have a node without a job find a hardware fault of its own."""
    world.agents[name].report("finding", WORN)
    world.tick()
    return Quarantine.objects.get(found_as=name, released_at=None)


def falls_silent(world: World, *names: str) -> None:
    for name in names:
        world.agents[name].beating = False
    for _ in range(8):
        world.tick(1.0)


@pytest.fixture
def bad(bare_world: World) -> World:
    """Return a world in which s1 broke, was noted, and is switched off."""
    bare_world.node("s1", hardware_ids={**BOARD, **GPUS})
    bare_world.node("s2", hardware_ids={"board_serial": "PF777777", "macs": BOARD["macs"], "cpu_model": "EPYC 9654"})
    bare_world.tick()
    goes_bad(bare_world, "s1")
    falls_silent(bare_world, "s1")
    return bare_world


def test_a_hardware_fault_quarantines_what_tells_the_machine_again_and_nothing_else(bad: World) -> None:
    found = Quarantine.objects.get()
    assert found.identities == ["board:pf2k9abc", "gpu:gpu-77aa01bc-9911", "gpu:gpu-8f6d2f3e-0a51"]
    assert found.incident == Incident.objects.get()
    assert health("s1")[0] == NodeHealth.UNHEALTHY
    assert health("s2") == (NodeHealth.HEALTHY, "")


@pytest.mark.parametrize("part", [BOARD, {"board_serial": "OTHER123", "gpu_uuids": GPUS["gpu_uuids"][1:]}])
def test_bad_hardware_that_comes_back_under_another_name_is_refused_with_its_history(
    bad: World, part: dict[str, Any]
) -> None:
    job = bad.submit(nodes=1)
    bad.node("s9", hardware_ids=part)
    state, reason = health("s9")
    assert state == NodeHealth.UNHEALTHY, "at once, before any round"
    for word in ("s1", f"incident {Incident.objects.get().pk}", "quarantined"):
        assert word in reason
    found = {each.node: each for each in standbys.candidates(job, now=clock.now())}
    assert not found["s9"].healthy
    assert found["s9"].condition == reason
    bad.tick()
    assert health("s9")[0] == NodeHealth.UNHEALTHY


def test_a_gpu_swapped_in_later_is_found_when_the_agent_comes_back(bad: World) -> None:
    agent = bad.agents["s2"]
    agent.facts["hardware_ids"] = {"board_serial": "PF777777", "gpu_uuids": GPUS["gpu_uuids"][:1]}
    agent.join()
    assert health("s2")[0] == NodeHealth.UNHEALTHY
    assert "GPU gpu-8f6d2f3e-0a51" in health("s2")[1]
    assert "gpu_uuids" in NodeEvent.objects.get(kind="hardware").text
    agent.facts["hardware_ids"] = {"board_serial": "PF777777"}
    agent.join()
    assert health("s2")[0] == NodeHealth.HEALTHY


def test_ids_of_copied_images_and_of_several_agents_on_one_machine_take_nobody_along(bare_world: World) -> None:
    copied = {"machine_id": "9f2c41d07be1", "board_serial": "None"}
    for name in ("v1", "v2", "v3"):
        bare_world.node(name, hardware_ids=copied)
    bare_world.tick()
    assert goes_bad(bare_world, "v1").identities == []
    bare_world.tick()
    assert [health(name)[0] for name in ("v1", "v2", "v3")] == ["unhealthy", "healthy", "healthy"]


def test_an_image_copied_from_a_bad_machine_later_takes_nobody_along(bare_world: World) -> None:
    bare_world.node("v1", hardware_ids={"machine_id": "9f2c41d07be1"})
    bare_world.tick()
    assert goes_bad(bare_world, "v1").identities == ["machine:9f2c41d07be1"]
    bare_world.node("v2", hardware_ids={"machine_id": "9f2c41d07be1"})
    assert health("v2")[0] == NodeHealth.UNHEALTHY
    bare_world.node("v3", hardware_ids={"machine_id": "9f2c41d07be1"})
    bare_world.tick()
    assert [health(name)[0] for name in ("v2", "v3")] == ["healthy", "healthy"]


def test_an_override_frees_one_node_with_a_note_and_the_quarantine_stands_for_others(bad: World) -> None:
    bad.node("s9", hardware_ids=BOARD)
    found = Quarantine.objects.get()
    target = Node.objects.get(name="s9")
    with pytest.raises(InvalidInput, match="note"):
        quarantine.override(found, target, by="ann", note=" ")
    quarantine.override(found, target, by="ann", note="Board swapped, GPUs are new")
    with pytest.raises(DomainError, match="override already"):
        quarantine.override(found, target, by="bob", note="me too")
    bad.tick()
    assert health("s9")[0] == NodeHealth.HEALTHY
    bad.node("s8", hardware_ids=GPUS)
    assert health("s8")[0] == NodeHealth.UNHEALTHY
    event = NodeEvent.objects.filter(node=target, kind="quarantine").get()
    assert (event.actor, "Board swapped" in event.text) == ("ann", True)


def test_releasing_a_quarantine_needs_a_note_and_happens_once(bad: World) -> None:
    bad.node("s9", hardware_ids=BOARD)
    found = Quarantine.objects.get()
    with pytest.raises(InvalidInput, match="note"):
        quarantine.release(found, by="ann", note="")
    quarantine.release(found, by="ann", note="GPU replaced")
    with pytest.raises(DomainError, match="released already"):
        quarantine.release(found, by="bob", note="again")
    bad.tick()
    assert health("s9")[0] == NodeHealth.HEALTHY
    assert health("s1")[0] == NodeHealth.UNHEALTHY, "its incident is open and its hold stands"


def test_releasing_the_last_hold_on_a_node_releases_what_was_found_on_it(bad: World) -> None:
    bad.agents["s1"].beating = True
    own = Hold.objects.get(node__name="s1", released_at=None)
    other = nodes.hold(Node.objects.get(name="s1"), owner="bob", reason="moving racks")
    nodes.release_hold(own, by="ann", note="GPU replaced")
    bad.tick()
    assert Quarantine.objects.get().released_at is None
    nodes.release_hold(other, by="bob")
    kept = Quarantine.objects.get()
    assert kept.released_by == "bob"
    assert Incident.objects.get().closed_at is not None
    bad.tick()
    assert health("s1")[0] == NodeHealth.HEALTHY


def test_a_person_quarantines_once_and_says_why(bare_world: World) -> None:
    bare_world.node("s1", hardware_ids=BOARD)
    bare_world.tick()
    target = Node.objects.get(name="s1")
    quarantine.put_by_hand(target, reason="burnt smell", by="ann")
    with pytest.raises(DomainError, match="already"):
        quarantine.put_by_hand(target, reason="again", by="bob")
    bare_world.tick()
    assert health("s1") == (NodeHealth.UNHEALTHY, "burnt smell")


def test_wrong_bits_in_a_check_quarantine_the_machine(world: World) -> None:
    world.agents["s1"].digest = "wrong"
    validations.begin(Node.objects.get(name="s1"))
    world.until(Quarantine.objects.exists)
    found = Quarantine.objects.get()
    assert (found.found_as, found.created_by) == ("s1", "automation")
    assert "corruption" in found.reason
    assert health("s1")[0] == NodeHealth.UNHEALTHY


def test_two_incidents_on_one_node_are_one_quarantine(bad: World) -> None:
    bad.agents["s1"].beating = True
    bad.agents["s1"].report("finding", {"code": "xid-48", "evidence": "Double bit error", "count": 1})
    bad.tick()
    assert Quarantine.objects.count() == 1


def test_nothing_is_asked_twice_while_nothing_is_quarantined(world: World, django_assert_num_queries: Any) -> None:
    rows = list(Node.objects.all())
    with django_assert_num_queries(1):
        assert quarantined.by_node(rows) == {}


def test_repeat_offenders_are_counted_by_hardware_over_names_and_by_days(bad: World) -> None:
    bad.node("s9", hardware_ids=BOARD)
    for days, name in ((1, "s9"), (40, "s9"), (100, "s9"), (2, "s2")):
        at = clock.now() - offenders.DAY * days
        Incident.objects.create(
            node=Node.objects.get(name=name), code="xid-48", fault_class="hardware", action="hold", opened_at=at
        )
    Incident.objects.create(
        node=Node.objects.get(name="s2"), code="oom", fault_class="application", opened_at=clock.now()
    )
    beats.flush(clock.now())
    lines = offenders.repeat_offenders(clock.now())
    told = [(line.names, line.in_30_days, line.in_90_days) for line in lines]
    assert told == [(("s1", "s9"), 2, 3), (("s2",), 1, 1)]
    assert lines[0].identities == ("board serial pf2k9abc", "GPU gpu-77aa01bc-9911", "GPU gpu-8f6d2f3e-0a51")
