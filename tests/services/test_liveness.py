"""Unreachable is not failed: what silence alone does, and what it takes to give a node up."""

from datetime import timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from reliability.domain.health import NodeHealth
from reliability.models import Failover, Finding, Incident, Job, Lease, Node, Rank, ServiceBeat, Slot
from reliability.selectors import core
from reliability.services import beats, clock, losses, reconcile
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _health(name: str) -> str:
    return Node.objects.get(name=name).health


def test_a_node_whose_heartbeats_are_lost_while_training_goes_on_is_unreachable_and_nothing_else(world: World) -> None:
    world.running_job()
    for _ in range(2):  # the second blip is treated like the first
        world.agents["n2"].beating = False
        world.until(lambda: _health("n2") == NodeHealth.UNREACHABLE)
        for _ in range(40):
            world.tick(0.5)
        assert not Failover.objects.exists()
        assert world.job().state == Job.State.RUNNING
        world.agents["n2"].beating = True
        world.until(lambda: _health("n2") == NodeHealth.HEALTHY)


def test_one_of_several_nodes_lost_is_a_recovery_though_all_others_say_running(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(Failover.objects.exists, seconds=12)
    lost = Finding.objects.get(code="node-lost")
    assert lost.node.name == "n3"
    assert "Nothing was heard" in lost.evidence
    assert "made a step" in lost.evidence
    assert world.job().state == Job.State.RECOVERING


def test_a_node_that_is_heard_again_while_its_job_is_locked_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].beating = False
    found = losses._slots_of

    def meanwhile(silent: list[Node]) -> list[Slot]:
        slots = found(silent)
        Node.objects.filter(name="n3").update(last_seen_at=clock.now())
        return slots

    monkeypatch.setattr(losses, "_slots_of", meanwhile)
    for _ in range(30):
        world.tick(0.5)
    assert not Finding.objects.filter(code="node-lost").exists()


def test_most_nodes_silent_at_once_is_one_incident_of_the_control_plane_and_no_nodes_fault(world: World) -> None:
    world.running_job()
    for agent in world.agents.values():
        agent.beating = False
        agent.stepping = False
    for _ in range(30):
        world.tick(1.0)
    assert [incident.code for incident in Incident.objects.all()] == ["control-plane"]
    assert not Failover.objects.exists()
    assert _health("n1") == NodeHealth.UNREACHABLE  # which is what is known, and blames nobody
    for agent in world.agents.values():
        agent.beating = True
        agent.stepping = True
    for _ in range(5):
        world.tick(0.5)
    assert Incident.objects.get().closed_at is not None
    assert not Failover.objects.exists()


def test_time_in_which_ingest_did_not_listen_is_nobodys_silence(world: World) -> None:
    world.running_job()
    world.pass_time(60)
    losses.look(clock.now())  # the web process was away: no beat of its own either
    assert _health("n1") == NodeHealth.HEALTHY
    beats.flush(clock.now())
    losses.look(clock.now())
    assert _health("n1") == NodeHealth.HEALTHY
    assert core.listening_since(clock.now()) == clock.now()


def test_the_beat_of_ingest_starts_anew_after_a_gap_only(world: World) -> None:
    began = ServiceBeat.objects.get(name=core.INGEST_BEAT).started_at
    world.pass_time(1)
    beats.flush(clock.now())
    assert ServiceBeat.objects.get(name=core.INGEST_BEAT).started_at == began
    world.pass_time(30)
    beats.flush(clock.now())
    assert ServiceBeat.objects.get(name=core.INGEST_BEAT).started_at == clock.now()


def test_last_seen_never_goes_backwards(world: World) -> None:
    now = clock.now()
    beats.remember("n1", None, now)
    beats.flush(now)
    beats.remember("n1", None, now - timedelta(seconds=5))
    beats.flush(now)
    assert Node.objects.get(name="n1").last_seen_at == now


def test_a_replacement_that_falls_silent_is_noticed_within_the_normal_limit(world: World) -> None:
    """A node that took over starts with a clean record, and a late message of its predecessor changes nothing."""
    world.running_job()
    world.save(20)
    _lose(world, "n3")
    world.recover()
    _lose(world, "s1")
    second = world.failover()
    assert second.failed_node is not None
    assert second.failed_node.name == "s1"
    assert world.recover().state == "completed"
    assert [move["to"] for move in world.failover().moves] == ["s2"]


def _lose(world: World, name: str) -> None:
    before = Failover.objects.count()
    for agent in world.agents.values():
        agent.stepping = False
    world.agents[name].power_off()
    world.until(lambda: Failover.objects.count() > before, seconds=15)
    for agent in world.agents.values():
        agent.stepping = True


def test_a_job_on_one_node_only_is_not_given_up_for_silence_alone(bare_world: World) -> None:
    bare_world.node("n1", "training")
    for name in ("s1", "s2", "s3"):
        bare_world.node(name)
    bare_world.tick()
    bare_world.running_job(nodes=1)
    bare_world.agents["n1"].power_off()
    for _ in range(40):
        bare_world.tick(0.5)
    assert _health("n1") == NodeHealth.UNREACHABLE
    assert not Failover.objects.exists()


def test_a_node_that_was_switched_off_and_on_within_the_silence_limit_is_found_without_its_container(
    world: World,
) -> None:
    world.running_job()
    world.save(20)
    for _ in range(8):
        world.tick(1.0)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.tick(2.0)
    world.agents["n3"].power_on()
    world.until(Failover.objects.exists, seconds=5)
    for agent in world.agents.values():
        agent.stepping = True
    failover = world.recover()
    assert (failover.kind, failover.state) == ("restart_in_place", "completed")
    assert failover.incident.code == "container-died"


def test_looking_for_missing_containers_takes_as_many_queries_for_many_nodes_as_for_one(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    world.running_job()
    Node.objects.update(containers={})
    with django_assert_max_num_queries(3):
        losses.missing_containers(clock.now())


def test_a_node_that_says_its_container_runs_is_believed(world: World) -> None:
    world.running_job()
    for _ in range(12):
        world.tick(1.0)
    assert not Finding.objects.exists()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_servers_clock_set_by_an_hour_loses_nobody_and_hides_no_later_loss(world: World, hours: int) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.beat()  # heard before the clock was set, and written after it
    world.pass_time(3600 * hours)
    before = {rank.rank: rank.step for rank in Rank.objects.all()}
    for _ in range(20):
        world.tick(0.5)
        assert not Failover.objects.exists()
    assert all(rank.step > before[rank.rank] for rank in Rank.objects.all()), "progress is shown"
    assert {_health(name) for name in ("n1", "n2", "n3")} == {NodeHealth.HEALTHY}
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(Failover.objects.exists, seconds=15)
    assert Finding.objects.get(code="node-lost").node.name == "n3"


def test_the_right_to_reconcile_that_a_clock_set_back_left_in_the_future_is_taken_over(world: World) -> None:
    ahead = clock.now() + timedelta(hours=1)
    Lease.objects.update_or_create(name=reconcile.LEASE_NAME, defaults={"holder": "gone:1", "until": ahead})
    assert reconcile.run(clock.now())
    held = clock.now() + timedelta(seconds=1)
    Lease.objects.filter(name=reconcile.LEASE_NAME).update(holder="another:2", until=held)
    assert not reconcile.run(clock.now()), "one that is held now is not taken away"
