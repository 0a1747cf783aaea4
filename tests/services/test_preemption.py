"""A standby that runs another job meanwhile: taken when it is the best that is left, and only as it was agreed."""

from collections import Counter

import pytest

from reliability.domain.failover import State
from reliability.models import Failover, Job, Node, OrderRecord
from reliability.selectors import core
from reliability.services import failovers, jobs, nodes, reconcile
from reliability.services.failovers import moves
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
MOMENTS = (2, 3, 4)
"""FENCED, PREEMPTED, STANDBY_PASSED: around what a preemption adds; test_interruptions.py has every transition."""


class Killed(BaseException):
    """The process died here."""


@pytest.fixture
def busy_standby(bare_world: World) -> World:
    """Return two nodes that train lm, and one preemptible standby that runs `small`."""
    for name in ("n1", "n2"):
        bare_world.node(name, "training")
    bare_world.tick()
    bare_world.running_job(nodes=2)
    bare_world.node("s1", preemptible=True)
    bare_world.tick()
    bare_world.running_job("small", nodes=1)
    bare_world.save(20)
    return bare_world


def _lose(world: World, name: str) -> Failover:
    for agent in world.agents.values():
        agent.stepping = agent.job == "small"
    world.agents[name].power_off()
    world.until(lambda: Failover.objects.filter(job__name="lm").exists())
    for agent in world.agents.values():
        agent.stepping = True
    return world.failover()


def _manual(world: World) -> None:
    Job.objects.filter(name="lm").update(approval="manual")


def _preempted(failover: Failover) -> list[str]:
    return [event.detail["job"] for event in failover.events.filter(event="preempted")]


def test_the_request_says_which_job_it_would_preempt_and_touches_nothing_before_the_decision(
    busy_standby: World,
) -> None:
    _manual(busy_standby)
    failover = _lose(busy_standby, "n2")
    busy_standby.tick(2)
    assert failover.proposal["moves"][0]["preempts"] == "small"
    assert "would preempt job small" in " ".join(failover.proposal["candidates"][0]["reasons"])
    assert not OrderRecord.objects.filter(node__name="s1", job__name="lm", failover=failover).exists()
    failovers.reject(failover, by=approver(), digest=failover.digest)
    busy_standby.tick(2)
    assert busy_standby.job("small").state == Job.State.RUNNING
    assert _preempted(failover) == []


def test_an_approval_binds_to_the_job_that_is_preempted(busy_standby: World) -> None:
    _manual(busy_standby)
    before = _lose(busy_standby, "n2")
    jobs.stop(busy_standby.job("small"), by="ann")
    busy_standby.tick()
    after = busy_standby.failover()
    assert after.pk != before.pk
    assert after.digest != before.digest
    changed = before.events.get(event="superseded").detail["changed"]["moves"]
    assert changed == [["slot 1: n2 -> s1, would preempt job small"], ["slot 1: n2 -> s1"]]


def test_the_preempted_job_is_stopped_its_node_taken_when_free_and_it_can_go_on_elsewhere(busy_standby: World) -> None:
    world = busy_standby
    world.agents["s1"].replies["release"] = lambda order: None
    _lose(world, "n2")
    world.until(lambda: world.job("small").state == Job.State.STOPPED)
    world.tick(5)
    failover = world.failover()
    assert failover.state == State.VALIDATING
    assert "prepare" not in [order.kind for order in world.agents["s1"].heard_orders if order.job == "lm"][1:]
    del world.agents["s1"].replies["release"]
    assert world.recover().state == State.COMPLETED
    failover.refresh_from_db()
    assert [(move["from"], move["to"]) for move in failover.moves] == [("n2", "s1")]
    assert _preempted(failover) == ["small"]
    small = world.job("small")
    assert f"Preempted by failover {failover.pk}" in small.state_reason
    assert "can be started again" in small.state_reason
    world.node("n9", "training")
    jobs.start(small, by="ann")
    world.until(lambda: world.job("small").state == Job.State.RUNNING)
    assert core.placement(world.job("small")) == {0: "n9"}
    assert small.ranks.get().restored_step == 20


def test_a_node_that_does_not_give_its_job_up_is_set_aside(busy_standby: World) -> None:
    world = busy_standby
    world.agents["s1"].replies["release"] = lambda order: {"status": "failed", "error": {"message": "It still runs."}}
    _lose(world, "n2")
    world.until(lambda: world.failover().state == State.WAITING_FOR_STANDBY)
    assert "could not give up job small: It still runs." in world.failover().refused_standbys[0]["reason"]


def test_a_node_that_is_not_preemptible_keeps_its_job(busy_standby: World) -> None:
    Node.objects.filter(name="s1").update(preemptible=False)
    _lose(busy_standby, "n2")
    busy_standby.until(lambda: busy_standby.failover().state == State.WAITING_FOR_STANDBY)
    told = busy_standby.failover().events.get(event="no_standby").detail["candidates"]
    assert told["s1"] == ["Occupied by job small, which must not be stopped."]
    assert busy_standby.job("small").state == Job.State.RUNNING


def test_a_free_standby_of_the_same_tier_comes_first(busy_standby: World) -> None:
    busy_standby.node("s2")
    busy_standby.tick()
    _lose(busy_standby, "n2")
    failover = busy_standby.recover()
    assert [move["to"] for move in failover.moves] == ["s2"]
    assert busy_standby.job("small").state == Job.State.RUNNING


def test_a_job_that_no_approval_named_is_not_preempted(busy_standby: World) -> None:
    """The approved standby fails its check: the next would have to be taken from a job nobody spoke of."""
    world = busy_standby
    _manual(world)
    world.node("s0").digest = "wrong"
    world.tick()
    failover = _lose(world, "n2")
    assert failover.proposal["moves"][0]["to"] == "s0"
    failovers.approve(failover, by=approver(), digest=failover.digest)
    world.until(lambda: world.failover().state == State.WAITING_FOR_STANDBY)
    assert world.job("small").state == Job.State.RUNNING


def test_a_node_made_free_for_a_recovery_is_given_to_nobody_else(busy_standby: World) -> None:
    world = busy_standby
    jobs.start(world.submit("next", nodes=1), by="ann")
    _lose(world, "n2")
    assert world.recover().state == State.COMPLETED
    assert world.job("next").state == Job.State.PENDING
    assert _preempted(world.failover()) == ["small"]


@pytest.mark.parametrize("died_in", MOMENTS)
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "after"])
def test_a_controller_that_died_is_taken_over_and_nothing_is_stopped_twice(
    busy_standby: World, monkeypatch: pytest.MonkeyPatch, died_in: int, inside: bool
) -> None:
    world = busy_standby
    real, advance = moves.move, failovers.advance
    for module in (reconcile, failovers):
        monkeypatch.setattr(module, "advance", lambda failover_id: None)
    _lose(world, "n2")
    _die(world, monkeypatch, died_in, inside=inside)
    monkeypatch.setattr(failovers, "move", real)
    for module in (reconcile, failovers):
        monkeypatch.setattr(module, "advance", advance)
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert _preempted(failover) == ["small"]
    assert world.job("small").state == Job.State.STOPPED
    assert max(Counter(world.starts()).values()) == 1
    assert core.placement(world.job()) == {0: "n1", 1: "s1"}


def _die(world: World, monkeypatch: pytest.MonkeyPatch, died_in: int, *, inside: bool) -> None:
    """Take `died_in` transitions; the last is lost with its process, or is the last that the process made."""
    calls, real = 0, moves.move

    def dying(failover: Failover, outcome: moves.Outcome) -> None:
        nonlocal calls
        calls += 1
        real(failover, outcome)
        if inside and calls == died_in:
            raise Killed

    monkeypatch.setattr(failovers, "move", dying)
    for _ in range(200):
        try:
            world.step()
        except Killed:
            return
        if calls == died_in:
            return
        world.tick(0.2)
    pytest.fail(f"only {calls} transitions were taken; {world.told()}")


def test_a_held_node_is_not_emptied_for_nothing(busy_standby: World) -> None:
    nodes.hold(Node.objects.get(name="s1"), owner="bob", reason="fan")
    _lose(busy_standby, "n2")
    busy_standby.until(lambda: busy_standby.failover().state == State.WAITING_FOR_STANDBY)
    assert busy_standby.job("small").state == Job.State.RUNNING
