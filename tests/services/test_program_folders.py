"""Jobs whose program writes its snapshots itself: what is submitted, what nodes are told, and what each gets back."""

import pytest

from reliability.domain.orders import OrderKind
from reliability.domain.program_folders import MARKER
from reliability.errors import InvalidInput
from reliability.models import OrderRecord
from reliability.services import jobs, launch
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def restores(world: World) -> list[OrderRecord]:
    job = world.job()
    return list(OrderRecord.objects.filter(job=job, kind=OrderKind.RESTORE, epoch=job.epoch).order_by("node__name"))


def test_an_empty_table_means_the_defaults_which_nodes_are_told_and_people_read(world: World) -> None:
    job = world.submit(mode="plain", program=["sh", "-c", "work"], snapshot_folder={})
    told = launch.container(world.job())["snapshot_folder"]
    named = {"of": "node", "sealed_by": "quiet", "quiet_s": 10.0, "marker": MARKER, "pattern": ""}
    assert told == {**named, "aside_bytes": 100 * 10**9}
    assert "nothing in it changed for 10 s" in job.folder_rule


def test_a_job_without_the_table_has_no_such_folder(world: World) -> None:
    job = world.submit()
    assert launch.container(job)["snapshot_folder"] is None
    assert job.folder_rule == ""


def test_what_is_wrong_in_the_table_is_told_with_its_field(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        world.submit(snapshot_folder={"quiet_s": -1})
    assert caught.value.field == "snapshot_folder.quiet_s"
    mount = {"source": "/data", "target": "/stepkeeper-snapshots/"}
    with pytest.raises(InvalidInput) as caught:
        world.submit(runtime="docker", image="i", mounts=[mount])
    assert caught.value.field == "mounts.0.target"


@pytest.mark.parametrize(("of", "ranks"), [("node", [1]), ("job", [0, 1, 2])])
def test_a_node_gets_the_shards_of_its_own_ranks_or_of_all_when_the_folder_is_the_jobs(
    world: World, of: str, ranks: list[int]
) -> None:
    job = world.submit(snapshot_folder={"of": of})
    jobs.start(job, by="ann")
    world.until(lambda: world.job().state == "running")
    world.save(20)
    world.save(25, tiers=("ssd",))
    world.agents["n2"].rank_dies(1, 1, tail="no such file: data.bin")
    failover = world.recover()
    payload = next(order.payload for order in restores(world) if order.node.name == "n2")
    assert [each["rank"] for each in payload["ranks"]] == ranks
    assert payload["local_ranks"] == [1]
    assert payload["snapshot_folder"]["of"] == of
    tiers = {source["tier"] for each in payload["ranks"] for source in each["sources"]}
    assert failover.restore_step == (20 if of == "job" else 25)
    assert tiers == ({"storage"} if of == "job" else {"ssd"})
