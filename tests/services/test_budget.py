"""Starting a program again: how often, when, and when no more (C29, C35, C37, C38)."""

import pytest

from reliability.domain.failover import State
from reliability.errors import IllegalTransition, InvalidInput, StaleProposal
from reliability.models import AttemptEnd, BatchSkip, Drill, Epoch, Failover, Incident, Job, Lease
from reliability.selectors import attempts, core
from reliability.services import clock, drills, failovers, fault_codes, incidents, jobs, skips
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
BAD_BATCH = "RuntimeError: CUDA error: device-side assert triggered"


@pytest.fixture
def world(bare_world: World, settings: object) -> World:
    """Return three training nodes; no standby that has to be looked after."""
    settings.VALIDATE_STANDBYS = False  # type: ignore[attr-defined]
    for name in ("n1", "n2", "n3"):
        bare_world.node(name, "training")
    bare_world.tick()
    return bare_world


def ended_at(world: World, step: int | None, code: int, *, tail: str = "", rank: int = 1) -> None:
    """A rank ends and tells its own last step; the others stand still where it left them."""
    agent = world.agents[f"n{rank + 1}"]
    for each in world.agents.values():
        each.ranks = {number: step or each.ranks[number] for number in each.ranks}
    agent.ranks.pop(rank, None)
    body = {"rank": rank, "exit_code": code, "signal": max(0, code - 128), "tail": tail, "last_step": step}
    agent.report("rank_exit", body)


def decided(world: World, since: int) -> None:
    """Let time pass until the job runs in a later attempt, or does not run any more."""
    over = (Job.State.FAILED, Job.State.WAITING)
    world.until(
        lambda: (world.job().state == Job.State.RUNNING and world.job().epoch > since) or world.job().state in over,
        seconds=60,
        tick_s=1.0,
    )


def die(world: World, code: int, *, step: int | None = None, tail: str = "") -> None:
    """One more end of rank 1, and what comes of it."""
    since = world.job().epoch
    ended_at(world, step, code, tail=tail)
    decided(world, since)


@pytest.mark.parametrize(("code", "cause"), [(139, "software/exit-code"), (1, "application/exit-code")])
def test_three_restarts_with_back_off_and_then_the_end_also_over_a_restart_of_the_controller(
    world: World, code: int, cause: str
) -> None:
    world.running_job(restart_budget=3)
    waits = []
    for turn in range(4):
        if turn == 2:
            Lease.objects.all().delete()  # a new controller knows nothing but what is in the database
        die(world, code)
        if turn < 3:
            made = world.failover()
            waits.append(round((made.start_after - made.fault_at).total_seconds(), 1))
            started = made.events.get(event="started").at
            assert started >= made.start_after
    assert waits == [1.0, 2.0, 4.0]
    job = world.job()
    assert (job.state, job.ended_at is not None) == (Job.State.FAILED, True)
    assert f"budget of 3 is used up for {cause}" in job.state_reason
    assert job.state_reason.count(f"exit-{code} on n2") == 4
    assert {epoch for _, epoch in world.starts()} == {1, 2, 3, 4}
    assert AttemptEnd.objects.filter(job=job, cause=cause).count() == 4


def test_a_program_that_is_not_found_is_never_started_again(world: World) -> None:
    jobs.start(world.submit(), by="ann")
    world.until(lambda: len(world.starts()) == 3)
    ended_at(world, None, 127, tail="sh: python4: not found")
    world.until(lambda: world.job().state == Job.State.FAILED)
    assert "cannot be started (exit-127)" in world.job().state_reason
    assert not Failover.objects.exists()
    assert not Incident.objects.filter(closed_at=None).exists()
    assert {epoch for _, epoch in world.starts()} == {1}


def test_ends_before_the_first_step_are_counted_and_wait_as_all_others(world: World) -> None:
    world.running_job(restart_budget=2)
    agent = world.agents["n2"]
    agent._first_steps = lambda order: agent.rank_dies(1, 139)  # type: ignore[method-assign]
    die(world, 139)
    assert world.job().state == Job.State.FAILED
    assert Failover.objects.count() == 1
    failed = world.failover()
    assert [event.detail.get("wait_s") for event in failed.events.filter(event="verify_failed")] == [2.0]
    assert "budget of 2 is used up" in world.job().state_reason
    assert {epoch for _, epoch in world.starts()} == {1, 2, 3}


def test_two_causes_have_budgets_of_their_own_and_a_newer_snapshot_gives_them_back(world: World) -> None:
    world.running_job(restart_budget=1)
    die(world, 139)
    die(world, 1)
    assert world.job().state == Job.State.RUNNING
    world.save(40)
    die(world, 139)
    assert (world.job().state, world.failover().start_after) == (Job.State.RUNNING, None)
    die(world, 1)
    assert world.job().state == Job.State.RUNNING
    die(world, 139)
    assert world.job().state == Job.State.FAILED


def test_the_same_end_twice_waits_for_a_person_with_the_attempts_and_offers_the_batch(world: World) -> None:
    world.running_job()
    world.save(20)
    die(world, 1, step=776, tail=BAD_BATCH)
    die(world, 1, step=776, tail=BAD_BATCH)
    job = world.job()
    assert job.state == Job.State.WAITING
    assert "No progress between attempts: it ended 2 times after step 776" in job.state_reason
    assert "epoch 1 from nothing" in job.state_reason
    assert "epoch 2 from step 20" in job.state_reason
    assert (BatchSkip.objects.get().step, Failover.objects.count()) == (777, 1)
    held = Incident.objects.order_by("-id")[0]
    assert (held.action, held.fault_class) == ("hold", "application")


def test_the_same_end_again_before_the_recovery_is_verified_waits_for_a_person_all_the_same(world: World) -> None:
    world.running_job()
    world.save(20)
    agent = world.agents["n2"]
    first_steps = agent._first_steps
    agent._first_steps = lambda order: ended_at(world, 776, 1, tail=BAD_BATCH)  # type: ignore[method-assign]
    die(world, 1, step=776, tail=BAD_BATCH)
    job, failover = world.job(), world.failover()
    assert (job.state, failover.state) == (Job.State.WAITING, State.FAILED)
    assert "No progress between attempts: it ended 2 times after step 776" in job.state_reason
    held = Incident.objects.order_by("-id")[0]
    assert (held.action, held.closed_at) == ("hold", None)
    agent._first_steps = first_steps  # type: ignore[method-assign]
    skip = BatchSkip.objects.get()
    skips.approve(skip, by=approver(), digest=skip.digest)
    decided(world, job.epoch)
    assert world.job().state == Job.State.RUNNING


def test_what_is_found_late_of_a_job_that_makes_no_progress_leaves_hold_the_last_word(world: World) -> None:
    world.running_job()
    world.save(20)
    die(world, 1, step=776, tail=BAD_BATCH)
    die(world, 1, step=776, tail=BAD_BATCH)
    held = Incident.objects.order_by("-id")[0]

    def last_word() -> str:
        return str(held.events.order_by("-id")[0].sentence)

    assert last_word().startswith("From restart in place (application) to hold (application): ")
    for late in (139, 134):
        found = held.findings.count()
        world.agents["n1"].report("rank_exit", {"rank": 0, "exit_code": late, "signal": late - 128, "tail": ""})
        world.until(lambda found=found: held.findings.count() > found)
        held.refresh_from_db()
        assert (held.action, world.job().state) == ("hold", Job.State.WAITING)
        assert " to hold (application): " in last_word()
    assert Failover.objects.count() == 1


def test_a_snapshot_after_which_it_ends_alike_twice_is_passed_over_once(world: World) -> None:
    world.running_job()
    world.save(200)
    world.save(303)
    die(world, 139, step=310)
    die(world, 1, step=306, tail="FloatingPointError: loss is NaN")
    die(world, 1, step=306, tail="FloatingPointError: loss is NaN")
    restored = [row.restored_step for row in Epoch.objects.order_by("number")]
    assert restored == [None, 303, 303, 200]
    assert world.job().state == Job.State.RUNNING
    assert [snapshot.step for snapshot in core.distrusted(world.job())] == [303]
    die(world, 1, step=306, tail="FloatingPointError: loss is NaN")
    assert world.job().state == Job.State.WAITING


def test_a_loss_that_is_no_number_at_the_same_step_again_is_no_progress_either(world: World) -> None:
    fault_codes.change("loss-no-number", values={"action": "restart_in_place"}, by="ada", reason="stop at once")
    world.running_job()
    world.save(20)
    for _ in range(2):
        since = world.job().epoch
        where = {"job": world.job(), "epoch": since, "rank": 1, "fields": {"step": 500}}
        incidents.note(world.agents["n2"].node, "loss-no-number", **where, evidence=f"so far {since} of them")
        decided(world, since)
    assert world.job().state == Job.State.WAITING
    assert BatchSkip.objects.get().step == 500


def suspected(world: World) -> BatchSkip:
    """Return the offer of a job that ended at the same step on two nodes."""
    world.running_job()
    world.save(20)
    for rank in (0, 1):
        since = world.job().epoch
        ended_at(world, 776, 1, tail=BAD_BATCH, rank=rank)
        decided(world, since)
    return BatchSkip.objects.get()


def test_the_same_step_on_two_nodes_moves_nothing_and_an_approved_skip_reaches_every_rank(world: World) -> None:
    offered = suspected(world)
    assert "Same step, two nodes" in Incident.objects.order_by("-id")[0].reasons[0]
    assert (offered.step, world.job().state, Failover.objects.count()) == (777, Job.State.WAITING, 1)
    for name in ("n1", "n2"):
        world.agents[name].asks_skips = True
    person = approver()
    with pytest.raises(StaleProposal):
        skips.approve(offered, by=person, digest="0" * 64)
    assert skips.approve(offered, by=person, digest=offered.digest, note="known bad") is not None
    with pytest.raises(IllegalTransition, match="left out by ada"):
        skips.approve(offered, by=person, digest=offered.digest)
    decided(world, 2)
    assert world.job().state == Job.State.RUNNING
    told = [
        order.payload["skip_steps"]
        for agent in world.agents.values()
        for order in agent.heard_orders
        if order.kind == "start" and order.epoch == 3
    ]
    assert told == [[777]] * 3
    attempt = Epoch.objects.get(number=3)
    assert (attempt.skip_steps, attempt.skip_read_by) == ([777], [0, 1])


def test_a_rejected_skip_leaves_the_job_waiting_and_is_not_offered_again(world: World) -> None:
    offered = suspected(world)
    person = approver()
    skips.reject(offered, by=person, digest=offered.digest)
    assert (world.job().state, attempts.skipped_steps(world.job())) == (Job.State.WAITING, [])
    failovers.propose_again(world.job(), by=person)
    decided(world, 2)
    ended_at(world, 776, 1, tail=BAD_BATCH)
    world.until(lambda: world.job().state == Job.State.WAITING)
    assert BatchSkip.objects.get().state == BatchSkip.State.REJECTED


def test_a_restart_in_back_off_gives_way_to_a_failover_when_the_node_turns_out_bad(world: World) -> None:
    world.running_job()
    world.node("s1")
    ended_at(world, None, 139)
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.STARTING, tick_s=0.1)
    assert world.failover().start_after > clock.now()
    world.agents["n2"].report("finding", {"code": "xid-79", "rank": 1, "evidence": "Xid 79"}, epoch=world.job().epoch)
    world.until(lambda: world.failover().kind == "failover" and world.failover().ended_at is not None)
    done = world.failover()
    assert (done.state, [move["from"] for move in done.moves]) == (State.COMPLETED, ["n2"])
    assert Failover.objects.order_by("-pk")[1].state == State.SUPERSEDED


def test_a_used_up_budget_leaves_a_failover_that_a_person_decides_on_to_that_person(world: World) -> None:
    world.running_job(restart_budget=0, approval="manual", class_actions={"application": "failover"})
    ended_at(world, None, 1)
    world.until(Failover.objects.exists)
    assert world.failover().state == State.AWAITING_APPROVAL
    assert "budget of 0 is used up" in world.failover().proposal["budget"]


def test_a_drill_spends_nothing_of_the_budget_and_does_not_wait(world: World) -> None:
    world.running_job(restart_budget=0)
    made = drills.start(world.job(), node=world.agents["n2"].node, what=Drill.What.KILL_RANK, by="ann")
    since = world.job().epoch
    ended_at(world, None, 137)
    decided(world, since)
    assert world.job().state == Job.State.RUNNING, world.told()
    assert (Drill.objects.get(pk=made.pk).failover, world.failover().start_after) == (world.failover(), None)


def test_a_job_says_which_class_gets_which_action_and_a_wrong_one_is_named(world: World) -> None:
    with pytest.raises(InvalidInput, match=r"class_actions\.network"):
        world.submit("bad", class_actions={"network": "reboot"})
    world.running_job(class_actions={"software": "hold"})
    ended_at(world, None, 139)
    world.until(lambda: world.job().state == Job.State.WAITING)
    assert "policy for class software is hold" in Incident.objects.get().reasons[-1]
