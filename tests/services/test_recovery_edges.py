"""Recoveries that are refused, overtaken, cut off from storage or given up: nothing is forgotten, nobody is stuck."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied

from reliability.domain.failover import State
from reliability.errors import DomainError, StaleProposal
from reliability.models import Failover, Hold, Job, Node, Rank, ServiceBeat
from reliability.selectors import core
from reliability.services import clock, failovers, jobs, modes, nodes
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
UNREACHABLE = {"code": "tier_unreachable", "message": "/storage cannot be reached.", "hint": "Check the mount."}


def _stop_stepping(world: World, *, stepping: bool = False) -> None:
    for agent in world.agents.values():
        agent.stepping = stepping


def _silent_request(world: World) -> Failover:
    """Return a manual request for n3, whose heartbeats stopped and which still has its ranks."""
    world.running_job(approval="manual")
    world.save(20)
    _stop_stepping(world)
    world.agents["n3"].beating = False
    world.until(Failover.objects.exists)
    return world.failover()


def _lose(world: World, *names: str) -> None:
    _stop_stepping(world)
    for name in names:
        world.agents[name].power_off()


def _xid(world: World, name: str, code: str = "xid-79") -> None:
    world.agents[name].report("finding", {"code": code, "rank": 2, "evidence": code}, epoch=world.job().epoch)


def _finish(world: World) -> None:
    for rank, name in enumerate(("n1", "n2", "n3")):
        world.agents[name].rank_dies(rank, 0)


def test_after_a_rejection_the_job_runs_again_once_every_rank_steps_and_is_completed(world: World) -> None:
    request = _silent_request(world)
    failovers.reject(request, by=approver(), digest=request.digest)
    world.tick(1)
    assert world.job().state == Job.State.WAITING
    _stop_stepping(world, stepping=True)
    world.agents["n3"].beating = True
    world.until(lambda: world.job().state == Job.State.RUNNING)
    _finish(world)
    world.until(lambda: world.job().state == Job.State.COMPLETED)
    assert world.job().epoch == 2


def test_a_person_may_ask_for_a_recovery_again_after_rejecting_one(world: World) -> None:
    request = _silent_request(world)
    person = approver()
    failovers.reject(request, by=person, digest=request.digest)
    with pytest.raises(PermissionDenied):
        failovers.propose_again(world.job(), by=User.objects.create_user("viewer"))
    again = failovers.propose_again(world.job(), by=person)
    assert (again.state, again.incident) == (State.AWAITING_APPROVAL, request.incident)
    assert [move["from"] for move in again.proposal["moves"]] == ["n3"]
    assert again.events.get(event="proposed").actor == "ada"
    with pytest.raises(DomainError, match="is open"):
        failovers.propose_again(world.job(), by=person)
    failovers.approve(again, by=person, digest=again.digest)
    _stop_stepping(world, stepping=True)
    assert world.recover().state == State.COMPLETED


def test_a_running_job_is_not_recovered_on_request(world: World) -> None:
    world.running_job()
    with pytest.raises(DomainError, match="running"):
        failovers.propose_again(world.job(), by=approver())


def test_a_job_that_finished_while_its_request_waited_is_not_run_again(world: World) -> None:
    request = _silent_request(world)
    starts = world.starts()
    Rank.objects.filter(job=world.job()).update(state=Rank.State.EXITED, exit_code=0)
    person = approver()
    with pytest.raises(StaleProposal, match="nothing left"):
        failovers.approve(request, by=person, digest=request.digest)
    request.refresh_from_db()
    assert request.state == State.CANCELLED
    assert world.job().state == Job.State.COMPLETED
    assert world.starts() == starts


def test_a_restart_in_place_that_must_move_a_slot_asks_before_it_does(world: World) -> None:
    stuck = {"code": "fence_unconfirmed", "message": "It still runs.", "hint": ""}
    world.running_job(approval="manual")
    world.save(20)
    world.agents["n3"].replies["stop"] = lambda order: {"status": "failed", "error": stuck}
    world.agents["n2"].rank_dies(1, 137)
    world.until(lambda: Failover.objects.count() == 2)
    first, second = Failover.objects.order_by("pk")
    assert (first.kind, first.state, first.moves) == ("restart_in_place", State.SUPERSEDED, [])
    assert (second.kind, second.state) == ("failover", State.AWAITING_APPROVAL)
    assert [(move["from"], move["to"]) for move in second.proposal["moves"]] == [("n3", "s1")]
    world.tick(5)
    assert [slot.node.name for slot in core.slots_of(world.job())] == ["n1", "n2", "n3"]
    failovers.approve(second, by=approver(), digest=second.digest)
    assert world.recover().state == State.COMPLETED
    assert Hold.objects.filter(node__name="n3", released_at=None).exists()


def test_a_node_that_lost_its_slot_is_set_aside_also_when_the_recovery_is_superseded(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: None
    _xid(world, "n3")
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.RESTORING)
    Node.objects.filter(name="n3").update(health="healthy", health_reason="")
    world.agents["n2"].report("finding", {"code": "xid-48", "rank": 1, "evidence": "xid-48"}, epoch=world.job().epoch)
    for agent in world.agents.values():
        del agent.replies["restore"]
    done = world.recover()
    assert done.state == State.COMPLETED
    assert Failover.objects.order_by("pk")[0].state == State.SUPERSEDED
    assert {slot.node.name for slot in core.slots_of(world.job())} == {"n1", "s1", "s2"}
    assert "xid-79" in Hold.objects.filter(node__name="n3", released_at=None)[0].reason


def test_a_stopped_job_still_sets_aside_the_node_that_failed(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: None
    _xid(world, "n3")
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.RESTORING)
    jobs.stop(world.job(), by="ann")
    assert Hold.objects.filter(node__name="n3", released_at=None).exists()
    assert Node.objects.get(name="n3").role == "standby"


def test_a_short_storage_outage_delays_a_recovery_and_blames_no_node(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: {"status": "failed", "error": UNREACHABLE}
    world.agents["n2"].rank_dies(1, 137)
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.RESTORING)
    for _ in range(20):
        world.tick(1)
    assert world.failover().state == State.RESTORING
    asked = [order for order in world.agents["n1"].heard_orders if order.kind == "restore"]
    assert 3 <= len(asked) <= 8
    for agent in world.agents.values():
        del agent.replies["restore"]
    done = world.recover()
    assert (done.state, done.attempt, done.refused_standbys) == (State.COMPLETED, 1, [])
    assert not Hold.objects.exists()


def test_a_long_storage_outage_ends_the_recovery_with_the_reason_and_blames_no_node(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: {"status": "failed", "error": UNREACHABLE}
    world.agents["n2"].rank_dies(1, 137)
    assert world.until(lambda: world.job().state == Job.State.FAILED, seconds=200, tick_s=4) is None
    assert "could not be reached" in world.job().state_reason
    assert not Hold.objects.exists()


def test_a_node_whose_hold_a_person_released_may_take_over_after_all(world: World) -> None:
    broken = {"code": "image_missing", "message": "The image is not there.", "hint": "Check it."}
    world.running_job()
    for name in ("s1", "s2"):
        world.agents[name].replies["start"] = lambda order: {"status": "failed", "error": broken}
    world.save(20)
    _lose(world, "n3")
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.WAITING_FOR_STANDBY)
    _stop_stepping(world, stepping=True)
    del world.agents["s1"].replies["start"]
    for hold in Hold.objects.filter(node__name="s1", released_at=None):
        nodes.release_hold(hold, by="bob")
    done = world.recover()
    assert done.state == State.COMPLETED
    assert [move["to"] for move in done.moves] == ["s1"]
    assert [each["node"] for each in done.refused_standbys] == ["s2"]


def test_new_snapshots_raise_the_shown_restore_point_of_one_and_the_same_request(world: World) -> None:
    world.running_job(approval="manual")
    world.save(20)
    _xid(world, "n3")
    world.until(Failover.objects.exists)
    request = world.failover()
    for step in (40, 60):
        world.save(step)
        world.tick()
    raised = Failover.objects.get()
    assert raised.proposal["restore"]["step"] == raised.restore_step == 60
    assert (raised.digest, raised.expires_at) == (request.digest, request.expires_at)
    failovers.approve(request, by=approver(), digest=request.digest)
    assert world.recover().restore_step == 60


def test_a_restore_point_that_falls_makes_a_new_request(world: World) -> None:
    world.running_job(approval="manual")
    world.save(20)
    world.save(40)
    _xid(world, "n3")
    world.until(Failover.objects.exists)
    world.job().snapshots.filter(step=40).update(distrusted=True)
    world.tick()
    first, second = Failover.objects.order_by("pk")
    assert (first.state, second.restore_step) == (State.SUPERSEDED, 20)
    assert first.events.get(event="superseded").detail["changed"] == {"restore step": [40, 20]}


def test_a_recovery_that_gave_up_releases_the_job_everywhere(world: World) -> None:
    world.running_job(restart_budget=0)
    world.tick()
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: world.job().state == Job.State.FAILED)
    world.tick()
    for name, agent in world.agents.items():
        assert "release" in {order.kind for order in agent.heard_orders}, name
    assert world.job().ended_at is not None
    assert world.job().epoch == 2


@pytest.mark.parametrize(
    ("rule", "told"), [("stop_when_stuck", "lease of 4 s ran out"), ("keep", "writes are refused")]
)
def test_that_a_lease_ran_out_is_recorded_only_where_it_ends_ranks(world: World, rule: str, told: str) -> None:
    world.running_job(lease_rule=rule)
    world.save(20)
    _lose(world, "n3")
    world.until(Failover.objects.exists)
    _stop_stepping(world, stepping=True)
    fenced = world.recover().events.filter(event__in=("fenced", "lease_ran_out")).get()
    assert told in fenced.detail["nodes"]["n3"]


def test_stages_separate_judging_from_waiting_also_of_a_superseded_request(world: World) -> None:
    request = _silent_request(world)
    judged = (request.created_at - request.fault_at).total_seconds()
    for _ in range(10):
        world.tick(1)
    nodes.hold(Node.objects.get(name="s1"), owner="bob", reason="memory errors")
    world.tick(1)
    second = Failover.objects.get(state=State.AWAITING_APPROVAL)
    assert second.pk != request.pk
    _stop_stepping(world, stepping=True)
    failovers.approve(second, by=approver(), digest=second.digest)
    done = world.recover()
    stages = {each["stage"]: each["seconds"] for each in core.stage_times(done)}
    assert stages["detected"] == pytest.approx(judged)
    assert stages["approved"] >= 11
    assert sum(stages.values()) == pytest.approx(core.recovery_seconds(done))


def test_a_rank_that_hangs_before_its_first_step_fails_the_job_in_time(world: World) -> None:
    world.agents["n2"].stepping = False
    jobs.start(world.submit(), by="ann")
    world.until(lambda: world.job().state == Job.State.FAILED, seconds=400, tick_s=5)
    assert "No first step of rank 1 within 240 s" in world.job().state_reason


def test_silence_before_an_approval_counts_only_while_ingest_listened(world: World) -> None:
    request = _silent_request(world)
    ServiceBeat.objects.update(started_at=clock.now())
    failovers.approve(request, by=approver(), digest=request.digest)
    world.tick(0.5)
    assert world.failover().state == State.FENCING
    _stop_stepping(world, stepping=True)
    world.agents["n3"].power_off()
    assert world.recover().state == State.COMPLETED


def test_a_request_that_turns_into_a_restart_asks_the_restart_budget(world: World) -> None:
    world.running_job(approval="manual")
    hold = nodes.hold(Node.objects.get(name="n3"), owner="bob", reason="to be serviced")
    world.agents["n2"].rank_dies(1, 139)
    world.until(Failover.objects.exists)
    assert (world.failover().kind, world.failover().state) == ("failover", State.AWAITING_APPROVAL)
    Job.objects.update(restart_budget=0)
    nodes.release_hold(hold, by="bob")
    world.until(lambda: world.job().state == Job.State.FAILED)
    assert "budget of 0 is used up" in world.job().state_reason
    assert world.failover().kind == "restart_in_place"


def test_a_request_that_turns_into_a_restart_which_a_person_decides_on_shows_that_the_budget_is_used_up(
    world: World,
) -> None:
    crash = modes.Scope(reach="code", name="exit-139")
    modes.set_mode(crash, mode="propose", by="ada", reason="to see how it does")
    world.running_job(approval="manual")
    hold = nodes.hold(Node.objects.get(name="n3"), owner="bob", reason="to be serviced")
    world.agents["n2"].rank_dies(1, 139)
    world.until(Failover.objects.exists)
    Job.objects.update(restart_budget=0)
    nodes.release_hold(hold, by="bob")
    world.until(lambda: world.failover().kind == "restart_in_place")
    world.tick(1)
    request = world.failover()
    assert (request.state, world.job().state) == (State.AWAITING_APPROVAL, Job.State.WAITING)
    assert "budget of 0 is used up" in request.proposal["budget"]
