"""Nodes that serve no job: who belongs to what many show at once, and a fault that is back after it was called over."""

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import Decision, Hold, Incident, Node, Quarantine
from reliability.services import clock, cluster_incidents, holds, incidents, node_incidents, quarantine
from tests.services.world import World

pytestmark = pytest.mark.django_db
CODE = "xid-79"
NODES = [f"n{number}" for number in range(10)]


def find(world: World, *names: str, after_s: float = 0.0, code: str = CODE) -> None:
    """Have nodes show a code after some time, all at once, and have it judged."""
    world.pass_time(after_s)
    found = [Node.objects.get(name=name) for name in names]
    for node in found:
        incidents.note(node, code, job=None)
    for node in found:
        node_incidents.judge_node(node.pk)


def held() -> set[str]:
    """Return the nodes that are held, each of which must be known as bad in every way."""
    names = set(Hold.objects.filter(released_at=None).values_list("node__name", flat=True))
    assert names == set(Node.objects.filter(health=NodeHealth.UNHEALTHY).values_list("name", flat=True))
    assert names == set(Quarantine.objects.filter(released_at=None).values_list("found_as", flat=True))
    return names


def wide() -> Incident:
    return Incident.objects.get(node=None, closed_at=None)


def of_the_wide() -> set[str]:
    return set(wide().findings.values_list("node__name", flat=True))


@pytest.fixture
def many(bare_world: World) -> World:
    """Return ten nodes without a job, eight of which showed the same at once."""
    for name in NODES:
        bare_world.node(name)
    bare_world.tick()
    find(bare_world, *NODES[:8])
    assert (wide().held_back, held(), of_the_wide()) == (True, set(), set(NODES[:8]))
    return bare_world


def test_one_node_that_shows_it_on_and_on_is_sick_itself_and_so_is_one_that_shows_it_much_later(many: World) -> None:
    find(many, "n0", after_s=480)
    assert held() == set()
    for _ in range(4):
        find(many, "n0", after_s=480)
        assert held() == {"n0"}
    find(many, "n9", after_s=480)
    assert held() == {"n0", "n9"}
    assert of_the_wide() == set(NODES[:8])
    assert set(Incident.objects.exclude(node=None).values_list("node__name", "action")) == {
        ("n0", "hold"),
        ("n9", "hold"),
    }


def test_a_node_more_makes_it_grow_so_that_the_next_one_still_belongs_to_it(many: World) -> None:
    find(many, "n8", after_s=480)
    find(many, "n0", after_s=300)
    find(many, "n9", after_s=200)
    assert (held(), of_the_wide()) == (set(), set(NODES))
    find(many, "n8", after_s=cluster_incidents.JOINED_S + 1)
    assert held() == {"n8"}


def test_many_that_show_it_again_are_still_the_one_event_however_late(many: World) -> None:
    find(many, *NODES[:8], after_s=7200)
    find(many, "n9", after_s=500)
    assert (held(), of_the_wide()) == (set(), {*NODES[:8], "n9"})


def test_what_was_released_takes_no_node_in_any_more(many: World) -> None:
    cluster_incidents.release(wide(), by="ada", note="")
    find(many, "n9", after_s=200)
    assert held() == {*NODES[:8], "n9"}
    find(many, *NODES[:8], after_s=7200)
    find(many, *NODES[:8], after_s=7200)
    wides = Incident.objects.filter(node=None, closed_at=None).order_by("id")
    assert list(wides.values_list("held_back", flat=True)) == [False, True]


@pytest.mark.parametrize("after_s", [30, 290, 310])
def test_a_fault_that_is_back_after_a_release_holds_quarantines_and_decides_again(
    bare_world: World, after_s: float
) -> None:
    bare_world.node("n0")
    bare_world.tick()
    find(bare_world, "n0")
    for turn in range(1, 3):
        assert held() == {"n0"}
        holds.release_hold(Hold.objects.get(released_at=None), by="ada", note="cable seated anew")
        assert held() == set()
        find(bare_world, "n0", after_s=after_s)
        assert held() == {"n0"}
        assert Decision.objects.filter(action="hold", mode="automatic").count() == turn + 1
        assert Incident.objects.filter(closed_at=None).count() == 1


def test_a_fault_that_is_back_after_its_incident_was_closed_by_hand_finds_the_node_held_still(
    bare_world: World,
) -> None:
    bare_world.node("n0")
    bare_world.tick()
    find(bare_world, "n0")
    Incident.objects.update(closed_at=clock.now(), close_reason="ada: seen")
    quarantine.release(Quarantine.objects.get(), by="ada", note="not the hardware")
    find(bare_world, "n0", after_s=30)
    assert held() == {"n0"}
    assert Hold.objects.count() == 1


def test_what_is_only_observed_and_comes_back_at_once_stays_one_incident(bare_world: World) -> None:
    bare_world.node("n0")
    bare_world.tick()
    find(bare_world, "n0", code="net-link-slow")
    Incident.objects.update(closed_at=clock.now(), close_reason="ada: seen")
    find(bare_world, "n0", code="net-link-slow", after_s=30)
    assert Incident.objects.get().closed_at is None
    assert held() == set()
