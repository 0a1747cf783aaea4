"""A tier that runs full is told before it bites, once, without blaming anybody, and taken back when there is room."""

from typing import Any

import pytest

from reliability.domain.reports import parse_batch
from reliability.errors import InvalidInput
from reliability.models import Failover, Incident, Job, Node, Room
from reliability.selectors.rooms import warnings
from reliability.services import beats, clock, quiet_incidents, rooms
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
GB = 10**9


def tell(world: World, name: str, **disks: Any) -> None:
    """A node tells of its disks, and the controller looks half a minute later."""
    agent = world.agents[name]
    raw = {"node": name, "incarnation": agent.incarnation, "heartbeat": {"jobs": [], "spooled": 0, "disks": disks}}
    world.pass_time(25)
    beats.remember(name, parse_batch(raw).heartbeat, clock.now())
    beats.flush(clock.now())
    rooms.look(clock.now())


def space(free_gb: float, total_gb: float = 100, **more: int) -> dict[str, int]:
    return {"free_bytes": int(free_gb * GB), "total_bytes": int(total_gb * GB), **more}


def test_an_ssd_that_fills_is_told_with_the_time_left_and_taken_back_when_it_is_clearly_better(world: World) -> None:
    for free in (61, 60, 59):
        tell(world, "n1", ssd=space(free))
    (warned,) = warnings()
    assert warned.node == Node.objects.get(name="n1")
    assert warned.words == "Full in about 25 min at this rate."
    incident = Incident.objects.get(code="tier-filling")
    assert (incident.fault_class, incident.action, incident.closed_at) == ("storage", "observe", None)
    assert "The ssd tier of n1 is running full" in incident.summary
    tell(world, "n1", ssd=space(58))
    assert Incident.objects.filter(code="tier-filling").count() == 1
    for _ in range(30):
        tell(world, "n1", ssd=space(58))
    assert not warnings()
    incident.refresh_from_db()
    assert incident.close_reason == "There is room again."
    assert not Failover.objects.exists()


def test_a_warning_stays_open_however_quiet_it_is(world: World) -> None:
    tell(world, "n1", ssd=space(1))
    world.pass_time(3600)
    quiet_incidents.close_quiet(clock.now())
    assert Incident.objects.get(code="tier-filling").closed_at is None


def test_inodes_and_shared_memory_are_looked_at_as_bytes_on_a_disk_are(world: World) -> None:
    tell(world, "n1", memory=space(1, 64), ssd=space(90, free_inodes=10, total_inodes=10**6))
    levels = {room.tier: (room.level, room.words) for room in warnings()}
    assert levels["memory"][0] == "low"
    assert levels["ssd"] == ("full", "Only 10 inodes are free: no more files can be made there.")


def test_a_storage_folder_that_many_nodes_see_is_told_once(world: World) -> None:
    job = world.running_job()
    for name in ("n1", "n2", "n3"):
        tell(world, name, storage=space(2))
    (warned,) = warnings()
    assert (warned.node, warned.place) == (None, job.storage_dir)
    assert Incident.objects.filter(code="tier-filling").count() == 1
    Job.objects.update(state="stopped")
    world.pass_time(10)
    rooms.look(clock.now())
    assert not Room.objects.filter(node=None).exists()
    assert Incident.objects.get(code="tier-filling").closed_at is not None


def test_a_job_may_ask_to_be_warned_earlier(world: World) -> None:
    world.running_job(warn_free_share=0.5)
    tell(world, "n1", ssd=space(40))
    tell(world, "s1", ssd=space(40))
    assert [room.node.name for room in warnings() if room.node] == ["n1"]


@pytest.mark.parametrize("bad", [{"warn_free_share": 5}, {"warn_full_within_s": -1}, {"warn_free_share": "much"}])
def test_limits_that_are_none_are_refused_by_name(world: World, bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        world.submit(**bad)


def test_what_a_node_tells_may_be_anything(world: World) -> None:
    tell(world, "n1", ssd="lots", memory={"free_bytes": 10**12, "total_bytes": -4}, other=space(0))
    assert not Room.objects.exists()


def test_the_room_of_the_next_save_is_known_from_the_last_one(world: World) -> None:
    world.running_job()
    world.save(20)
    tell(world, "n1", ssd=space(90))
    assert Room.objects.get(tier="ssd").save_bytes == 1000
