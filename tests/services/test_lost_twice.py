"""A node that is found lost again, when its loss is being answered already, changes nothing about the answer."""

from collections import Counter
from datetime import datetime

import pytest

from reliability.domain.failover import State
from reliability.models import Failover, Finding, Incident, Node, Slot
from reliability.selectors import core
from reliability.services import clock, incidents, losses
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

HELD_AT = {
    State.FENCING: "stop",
    State.VALIDATING: "probe_measure",
    State.RESTORING: "restore",
    State.STARTING: "start",
}
"""An order that nobody answers keeps a recovery in a state."""


def _hold_at(world: World, state: State) -> None:
    for agent in world.agents.values():
        agent.replies[HELD_AT[state]] = lambda order: None


def _let_go(world: World) -> None:
    for agent in world.agents.values():
        agent.replies.clear()


def _lose_until(world: World, state: State) -> Failover:
    world.running_job()
    world.save(20)
    _hold_at(world, state)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n2"].power_off()
    world.until(lambda: Failover.objects.exists() and world.failover().state == state, seconds=180)
    for agent in world.agents.values():
        agent.stepping = True
    return world.failover()


def _found_lost(world: World, name: str) -> None:
    job = world.job()
    node = Node.objects.get(name=name)
    incidents.note(node, "node-lost", job=job, epoch=job.epoch, evidence="silent", key=f"lost:{job.epoch}:{name}")
    incidents.judge(job.pk)


def _complaint(world: World, name: str) -> None:
    """Something harmless that makes the incident be judged again."""
    job = world.job()
    incidents.note(Node.objects.get(name=name), "peer-closed", job=job, epoch=job.epoch, evidence="peer closed")
    incidents.judge(job.pk)


@pytest.mark.parametrize("complained_at", [State.RESTORING, State.STARTING])
@pytest.mark.parametrize("found_at", [State.FENCING, State.VALIDATING, State.RESTORING])
def test_a_node_whose_loss_is_answered_already_starts_no_rank_twice(
    world: World, found_at: State, complained_at: State
) -> None:
    first = _lose_until(world, found_at)
    _found_lost(world, "n2")
    _hold_at(world, complained_at)
    world.agents["s1"].replies.pop(HELD_AT[found_at], None)
    if found_at != complained_at:
        for agent in world.agents.values():
            agent.replies.pop(HELD_AT[found_at], None)
    world.until(lambda: world.failover().state == complained_at, seconds=180)
    _complaint(world, "n1")
    assert world.failover() == first
    _let_go(world)
    done = world.recover(seconds=180)
    assert (done, done.state, [move["from"] for move in done.moves]) == (first, State.COMPLETED, ["n2"])
    assert set(Counter(world.starts()).values()) == {1}
    assert Incident.objects.filter(job=world.job()).count() == 1


def test_a_node_that_holds_a_slot_of_the_new_attempt_is_still_replaced(world: World) -> None:
    first = _lose_until(world, State.RESTORING)
    _found_lost(world, "s1")
    assert world.failover().pk != first.pk
    first.refresh_from_db()
    assert first.state == State.SUPERSEDED


def test_a_look_that_began_before_the_slot_moved_says_nothing_of_the_new_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the slots and the lock on the job a recovery may have given the slot to a standby."""
    first = _lose_until(world, State.FENCING)
    lost = list(core.slots_of(world.job()))[1]
    assert lost.node is not None
    _let_go(world)
    _hold_at(world, State.RESTORING)
    world.until(lambda: world.failover().state == State.RESTORING, seconds=180)
    seen: list[datetime] = []

    def as_before(_silent: object) -> list[Slot]:
        seen.append(clock.now())
        return [lost]

    monkeypatch.setattr(losses, "_slots_of", as_before)
    Finding.objects.filter(node=lost.node).delete()
    world.tick(1)
    assert seen
    assert not Finding.objects.filter(node=lost.node).exists()
    assert world.failover() == first
