"""One bad measurement holds nobody for ever, and a measurement that was not made is no pass."""

import pytest

from reliability.models import Failover, Hold, Node, Validation
from reliability.services import nodes, validations
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _check(name: str) -> Validation:
    return Validation.objects.filter(node__name=name, check_kind="bandwidth").latest("pk")


def test_a_bandwidth_that_fails_once_is_measured_again_with_its_reference(world: World) -> None:
    Validation.objects.all().delete()
    agent = world.agents["s1"]
    agent.bandwidth = 1e6
    validations.begin(Node.objects.get(name="s1"))
    world.until(lambda: "first_try" in _check("s1").measured)
    agent.bandwidth = 100e6
    world.until(lambda: Validation.objects.filter(node__name="s1", verdict="pass").count() == 2)
    assert not Hold.objects.exists()
    measured = _check("s1").measured
    assert "less than" in measured["first_try"]["reason"]
    assert {pair["first"] for pair in measured["pairs"]} >= {"s1"}


def test_a_bandwidth_that_fails_twice_holds_until_a_later_check_passes(world: World) -> None:
    Validation.objects.all().delete()
    agent = world.agents["s1"]
    agent.bandwidth = 1e6
    validations.begin(Node.objects.get(name="s1"))
    world.until(lambda: Hold.objects.filter(node__name="s1", released_at=None).exists())
    person = nodes.hold(Node.objects.get(name="s2"), owner="bob", reason="bandwidth check: mine")
    agent.bandwidth = 100e6
    for _ in range(20):
        world.tick(1.0)
    assert Hold.objects.filter(node__name="s1", released_at=None).exists()  # not before a minute has passed
    world.until(lambda: not Hold.objects.filter(node__name="s1", released_at=None).exists(), seconds=70, tick_s=1.0)
    assert Hold.objects.get(node__name="s1").released_by == nodes.AUTOMATION
    person.refresh_from_db()
    assert person.released_at is None


def test_wrong_bits_are_not_forgiven_by_one_right_answer(world: World) -> None:
    Validation.objects.all().delete()
    world.agents["s1"].digest = "wrong"
    validations.begin(Node.objects.get(name="s1"))
    world.until(lambda: Hold.objects.filter(node__name="s1").exists())
    world.agents["s1"].digest = "right"
    for _ in range(60):
        world.tick(3.0)
    assert Hold.objects.filter(node__name="s1", released_at=None).exists()


def test_the_only_node_that_is_left_takes_over_though_its_bandwidth_could_not_be_judged(bare_world: World) -> None:
    bare_world.node("n1", "training")
    bare_world.node("s1")
    bare_world.tick()
    bare_world.running_job(nodes=1)
    bare_world.save(20)
    bare_world.agents["n1"].report("finding", {"code": "xid-79", "evidence": "gone", "count": 1})
    bare_world.until(Failover.objects.exists)
    assert bare_world.recover(seconds=60).state == "completed"
    assert [move["to"] for move in bare_world.failover().moves] == ["s1"]
    assert not Hold.objects.filter(node__name="s1").exists()
