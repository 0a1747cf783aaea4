"""A controller that dies at any moment of a recovery leaves nothing undone and does nothing twice."""

from collections import Counter

import pytest

from reliability.domain.failover import OPEN, State
from reliability.models import Failover, Incident, Job
from reliability.services import beats, failovers, incidents, jobs, reconcile, reports
from reliability.services.failovers import STEPS, moves
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
TRANSITIONS = 6
"""APPROVED, FENCED, STANDBY_PASSED, RESTORED, STARTED, VERIFIED."""

FAST = 3
"""One moment of each kind is tried by the fast tests, all by `make test`."""


def _moments(first: int) -> list[object]:
    return [
        pytest.param(moment, marks=[] if moment == FAST else [pytest.mark.slow])
        for moment in range(first, TRANSITIONS + 1)
    ]


class Killed(BaseException):
    """The process died here."""


def _proposed_loss(world: World) -> Failover:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    return world.failover()


@pytest.fixture
def no_advance(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Keep reconciliation from taking steps, so that a test takes each of them itself."""
    monkeypatch.setattr(reconcile, "advance", lambda failover_id: None)
    monkeypatch.setattr(failovers, "advance", lambda failover_id: None)
    return monkeypatch


def _assert_done_once(world: World) -> None:
    failover = world.failover()
    assert failover.state == State.COMPLETED
    assert world.job().state == Job.State.RUNNING
    assert [move["to"] for move in failover.moves] == ["s1"]
    assert max(Counter(world.starts()).values()) == 1
    assert {node for node, epoch in world.starts() if epoch == world.job().epoch} == {"n1", "n2", "s1"}
    assert Failover.objects.count() == 1


def test_every_open_state_has_a_step() -> None:
    assert set(STEPS) == set(OPEN)


@pytest.mark.parametrize("died_after", _moments(0))
def test_a_controller_that_died_between_two_transitions_is_taken_over(
    world: World, no_advance: pytest.MonkeyPatch, died_after: int
) -> None:
    _proposed_loss(world)
    taken = 0
    for _ in range(200):
        if taken == died_after:
            break
        taken += world.step()
        world.tick(0.1)
    assert taken == died_after
    beats.memory.take()  # whatever the process remembered is gone
    no_advance.setattr(reconcile, "advance", _advance)
    world.recover()
    _assert_done_once(world)


@pytest.mark.parametrize("died_in", _moments(1))
def test_a_controller_that_died_inside_a_transition_is_taken_over(
    world: World, no_advance: pytest.MonkeyPatch, died_in: int
) -> None:
    _proposed_loss(world)
    calls = 0
    real = moves.move

    def dying(failover: Failover, outcome: moves.Outcome) -> None:
        nonlocal calls
        calls += 1
        real(failover, outcome)
        if calls == died_in:
            raise Killed

    no_advance.setattr(failovers, "move", dying)
    died = False
    for _ in range(200):
        try:
            world.step()
        except Killed:
            died = True
            break
        world.tick(0.1)
    assert died
    no_advance.setattr(failovers, "move", real)
    no_advance.setattr(reconcile, "advance", _advance)
    world.recover()
    _assert_done_once(world)


def test_a_finished_recovery_is_not_repeated_when_everything_is_looked_at_again(world: World) -> None:
    _proposed_loss(world)
    world.recover()
    before = list(world.starts())
    world.agents["n3"].power_on()
    for _ in range(20):
        world.tick(0.5)
    _assert_done_once(world)
    assert world.starts() == before


def _advance(failover_id: int) -> None:
    for _ in range(failovers.MAX_STEPS):
        if not failovers.step(failover_id):
            return


def test_an_incident_is_kept_before_it_is_answered_and_answered_when_the_controller_died_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.running_job()
    world.save(20)

    def dies(*what: object) -> None:
        raise Killed

    world.agents["n2"].rank_dies(1, 139)
    with monkeypatch.context() as patch:
        patch.setattr(incidents, "_act", dies)
        with pytest.raises(Killed):
            reports.process_new()
    incident = Incident.objects.get()
    assert (incident.action, incident.to_answer) == ("restart_in_place", True)
    assert not Failover.objects.exists()
    assert incidents.undecided() == [world.job().pk]
    world.recover()
    assert world.failover().state == State.COMPLETED
    assert not Incident.objects.filter(to_answer=True).exists()
    assert incidents.undecided() == []


def test_an_incident_that_stands_is_raised_and_answered_in_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a recovery could end in between and close it, and what was found would never be answered."""
    world.running_job()
    world.save(20)
    world.agents["n2"].rank_dies(1, 139)
    reports.process_new()
    (first,) = Incident.objects.all()

    def dies(*what: object) -> None:
        raise Killed

    job = world.job()
    incidents.note(world.agents["n3"].node, "xid-79", job=job, epoch=job.epoch, evidence="GPU has fallen off the bus")
    with monkeypatch.context() as patch:
        patch.setattr(incidents, "_act", dies)
        with pytest.raises(Killed):
            incidents.judge(job.pk)
    first.refresh_from_db()
    assert (first.action, first.to_answer) == ("restart_in_place", False)
    world.until(lambda: Failover.objects.filter(kind="failover").exists())


def test_a_job_that_is_stopped_leaves_no_incident_to_be_answered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.running_job()
    world.agents["n2"].rank_dies(1, 139)
    with monkeypatch.context() as patch:
        patch.setattr(incidents, "_answer", lambda *what: None)
        reports.process_new()
    assert incidents.undecided() == [job.pk]
    jobs.stop(job, by="ann")
    assert incidents.undecided() == []
