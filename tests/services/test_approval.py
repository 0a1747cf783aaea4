"""What a person decides on is what happens, or nothing does."""

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import connections

from reliability.domain.failover import State
from reliability.errors import IllegalTransition, ReliabilityError, StaleProposal
from reliability.models import Failover, FailoverEvent, Job, Node
from reliability.services import clock, failovers, jobs, nodes
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def waiting(world: World) -> Failover:
    """Return a request to replace n3, which lost power, by s1, from step 20."""
    return _request(world)


def _request(world: World) -> Failover:
    world.running_job(approval="manual")
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    failover = world.failover()
    assert failover.state == State.AWAITING_APPROVAL
    return failover


def test_a_hardware_fault_waits_for_a_person_and_shows_what_would_be_done(world: World, waiting: Failover) -> None:
    world.tick(5)
    waiting.refresh_from_db()
    assert waiting.state == State.AWAITING_APPROVAL
    assert world.job().state == Job.State.WAITING
    assert waiting.proposal["moves"][0]["to"] == "s1"
    assert waiting.proposal["restore"]["step"] == 20
    assert waiting.proposal["candidates"][0]["reasons"]
    assert world.job().epoch == 1


def test_an_approved_request_runs_and_names_who_approved(world: World, waiting: Failover) -> None:
    failovers.approve(waiting, by=approver(), digest=waiting.digest, note="go")
    failover = world.recover()
    assert failover.state == State.COMPLETED
    assert (failover.decided_by, failover.decision_note) == ("ada", "go")
    assert failover.events.get(event="approved").actor == "ada"


@pytest.mark.parametrize("name", ["viewer", "anonymous"])
def test_without_the_permission_nobody_approves_or_rejects(waiting: Failover, name: str) -> None:
    person = AnonymousUser() if name == "anonymous" else User.objects.create_user(name)
    for decide in (failovers.approve, failovers.reject):
        with pytest.raises(PermissionDenied):
            decide(waiting, by=person, digest=waiting.digest)
    waiting.refresh_from_db()
    assert waiting.state == State.AWAITING_APPROVAL


def test_a_rejected_request_touches_nothing_and_is_not_made_again(world: World, waiting: Failover) -> None:
    starts = list(world.starts())
    failovers.reject(waiting, by=approver(), digest=waiting.digest, note="I look at it myself")
    for _ in range(20):
        world.tick(0.5)
    assert Failover.objects.get().state == State.REJECTED
    assert world.starts() == starts
    assert world.job().epoch == 1
    assert world.job().state == Job.State.WAITING
    assert "I look at it myself" in world.job().state_reason


def test_an_approval_of_something_else_than_what_stands_is_refused(waiting: Failover) -> None:
    with pytest.raises(StaleProposal):
        failovers.approve(waiting, by=approver(), digest="0" * 64)
    waiting.refresh_from_db()
    assert waiting.state == State.AWAITING_APPROVAL


def test_when_the_situation_changed_the_request_is_replaced_and_the_difference_shown(
    world: World, waiting: Failover
) -> None:
    nodes.hold(Node.objects.get(name="s1"), owner="bob", reason="memory errors")
    with pytest.raises(StaleProposal, match="situation changed"):
        failovers.approve(waiting, by=approver(), digest=waiting.digest)
    waiting.refresh_from_db()
    successor = Failover.objects.get(state=State.AWAITING_APPROVAL)
    assert waiting.superseded_by == successor
    assert successor.proposal["moves"][0]["to"] == "s2"
    changed = waiting.events.get(event="superseded").detail["changed"]
    assert changed["moves"] == [["slot 2: n3 -> s1"], ["slot 2: n3 -> s2"]]
    assert world.job().epoch == 1
    failovers.approve(successor, by=approver("eve"), digest=successor.digest)
    assert [move["to"] for move in world.recover().moves] == ["s2"]


def test_an_expired_request_is_made_anew(world: World, waiting: Failover) -> None:
    Failover.objects.filter(pk=waiting.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    world.tick()
    waiting.refresh_from_db()
    assert waiting.state == State.SUPERSEDED
    assert Failover.objects.filter(state=State.AWAITING_APPROVAL).count() == 1


def test_a_node_that_comes_back_by_itself_closes_the_request(world: World) -> None:
    world.running_job(approval="manual")
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].beating = False
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    world.agents["n3"].beating = True
    failover = world.recover()
    assert failover.state == State.CANCELLED
    assert world.job().state == Job.State.RUNNING
    assert world.job().epoch == 1


def test_a_second_approval_is_told_who_was_first(waiting: Failover) -> None:
    failovers.approve(waiting, by=approver(), digest=waiting.digest)
    with pytest.raises(IllegalTransition, match="approved by ada"):
        failovers.approve(waiting, by=approver("eve"), digest=waiting.digest)
    with pytest.raises(IllegalTransition, match="point of no return"):
        failovers.cancel(waiting, by=User.objects.get(username="eve"))


def test_a_stopped_job_ends_its_recovery(world: World, waiting: Failover) -> None:
    failovers.approve(waiting, by=approver(), digest=waiting.digest)
    jobs.stop(world.job(), by="ann")
    world.tick()
    waiting.refresh_from_db()
    assert waiting.state == State.CANCELLED
    assert world.job().state == Job.State.STOPPED
    with pytest.raises(ReliabilityError):
        jobs.stop(world.job(), by="ann")


@pytest.mark.django_db(transaction=True)
def test_of_two_approvals_at_the_same_moment_one_starts_the_recovery(world: World) -> None:
    waiting = _request(world)
    people = [approver("ada"), approver("eve")]
    ready = threading.Barrier(2, timeout=20)
    outcomes: list[str] = []

    def decide(person: User) -> None:
        try:
            ready.wait()
            failovers.approve(waiting, by=person, digest=waiting.digest)
            outcomes.append("approved")
        except IllegalTransition:
            outcomes.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=decide, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["approved", "refused"]
    assert FailoverEvent.objects.filter(failover=waiting, event="approved").count() == 1
    assert world.job().epoch == 2
