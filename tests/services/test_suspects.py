"""That ranks stand still may as well be the program's doing: a node is suspected of it once, and never called bad."""

from datetime import timedelta

import pytest

from reliability.domain.health import NodeHealth
from reliability.models import AttemptEnd, Failover, Finding, Hold, Incident, Job, Quarantine
from reliability.services import beats, clock, incidents, watching
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _hung_before(world: World, name: str, code: str, times: int) -> None:
    """Have the node been where training stood still so often today."""
    for hours in range(1, times + 1):
        at = clock.now() - timedelta(hours=hours)
        past = Incident.objects.create(
            code=code, fault_class="software", action="restart_in_place", opened_at=at, closed_at=at
        )
        node = world.agents[name].node
        Finding.objects.create(
            node=node, incident=past, code=code, fault_class="software", action="restart_in_place", found_at=at
        )


def _hangs(world: World, name: str, code: str) -> Incident:
    """Training stands still, and the ranks of this node differ from the others."""
    job = world.job()
    slot = job.slots.get(node__name=name)
    rank = slot.ranks.first()
    incidents.note(world.agents[name].node, code, job=job, epoch=job.epoch, rank=rank.rank if rank else None)
    incident = incidents.judge(job.pk)
    assert incident is not None
    return incident


@pytest.mark.parametrize(("code", "before"), [("hang", 2), ("hang-newcomer", 1)])
def test_a_node_suspected_of_hangs_is_replaced_uncondemned_and_counted_and_a_second_asks_a_person(
    world: World, code: str, before: int
) -> None:
    world.running_job(nodes=2)
    world.save(20)
    _hung_before(world, "n1", code, before)
    incident = _hangs(world, "n1", code)
    assert (incident.fault_class, incident.action) == ("unknown", "failover")
    recovery = world.recover()
    assert (recovery.state, [move["from"] for move in recovery.moves]) == ("completed", ["n1"])
    assert not Quarantine.objects.exists()
    assert world.agents["n1"].node.health != NodeHealth.UNHEALTHY
    assert Hold.objects.filter(node__name="n1", released_at=None).count() == 1
    assert AttemptEnd.objects.get().counts
    world.tick(10)
    _hung_before(world, "n2", "hang", 2)
    incident = _hangs(world, "n2", "hang")
    assert (incident.fault_class, incident.action) == ("unknown", "hold")
    assert "n1 was replaced for the like within the day" in " ".join(incident.reasons)
    assert Failover.objects.count() == 1
    assert world.job().state == Job.State.WAITING


def test_a_job_on_one_node_that_hangs_again_and_again_never_has_its_node_suspected(world: World) -> None:
    world.running_job(nodes=1, ranks_per_node=2)
    _hung_before(world, "n1", "hang", 5)
    agent = next(each for each in world.agents.values() if each.ranks)
    pace = {"median_s": 2.0, "mad_s": 0.05, "longest_s": 2.4, "timed": 300}
    agent.told = {rank: {"phase": "training", "watch": pace} for rank in agent.ranks}
    world.tick(2)
    agent.stepping = False
    agent.told[1]["watch"] = {**pace, "state": "stopped"}
    for _ in range(60):
        world.pass_time(1)
        agent.beat()
        beats.flush(clock.now())
        watching.look(clock.now())
        if Incident.objects.filter(closed_at=None).exists():
            break
    incident = Incident.objects.get(closed_at=None)
    assert (incident.code, incident.fault_class, incident.action) == ("hang-somewhere", "software", "restart_in_place")
    assert incident.findings.get().rank == 1
