"""What becomes of the plans of a job whose ranks do not run: it ended, it was started again, or it waits."""

import pytest

from reliability.errors import DomainError
from reliability.models import AutoPlan, Job, OrderRecord, Rank
from reliability.selectors import plan_history
from reliability.services import clock, jobs, plans, reconcile
from reliability.services.plans import announcing
from tests.services.planning import apply, in_force, running, saved_alike, train, train_to
from tests.services.test_plan_automatic import LIMITS
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def start_again(world: World) -> None:
    for agent in world.agents.values():
        agent.join()
    world.tick()
    jobs.start(world.job(), by="ann")
    world.until(lambda: world.job().state == Job.State.RUNNING)


@pytest.mark.parametrize("end", [Job.State.STOPPED, Job.State.FAILED, Job.State.COMPLETED])
def test_with_its_job_a_plan_is_over_and_what_came_of_it_is_kept(world: World, end: Job.State) -> None:
    running(world)
    made = in_force(world)
    train(world, 5)
    ended_at = clock.now()
    Job.objects.update(state=end, ended_at=ended_at)
    world.pass_time(3600.0)
    plans.follow_all(clock.now())
    made.refresh_from_db()
    assert (made.ended_at, made.ended_step) == (ended_at, max(Rank.objects.values_list("step", flat=True)))
    assert made.measured["kept_steps"] == (made.ended_step or 0) - (made.began_step or 0)
    assert plan_history.result(made, now=clock.now()).frozen
    state = plans.take_over(made, now=clock.now())
    assert (state.over, state.told, state.behind) == (True, "the job has ended", ())
    kept = dict(made.measured)
    world.pass_time(3600.0)
    plans.follow_all(clock.now())
    made.refresh_from_db()
    assert (made.ended_at, made.measured) == (ended_at, kept)


def test_a_plan_that_the_end_of_the_job_came_before_was_never_in_force(world: World) -> None:
    job = running(world)
    made = apply(world)
    jobs.stop(job, by="ann")
    world.tick()
    made.refresh_from_db()
    assert made.ended_at == world.job().ended_at
    assert made.measured == {"verdict": "never in force", "told": "The job ended before it came into force."}
    told = plans.take_over(made, now=clock.now()).told
    assert told == f"the job ended before step {made.from_step}, its first"


def test_a_job_that_is_started_again_goes_on_with_its_plan(world: World) -> None:
    job = running(world)
    world.save(5)
    made = in_force(world)
    jobs.stop(job, by="ann")
    world.tick(reconcile.SELDOM_S)
    made.refresh_from_db()
    assert made.ended_at is not None
    start_again(world)
    world.tick(reconcile.SELDOM_S)
    made.refresh_from_db()
    assert (made.ended_at, made.ended_step, made.measured) == (None, None, {})
    assert not plans.take_over(made, now=clock.now()).over
    second = in_force(world, mtbf_s=100.0, target=0.85)
    made.refresh_from_db()
    assert made.ended_at == second.began_at


def test_a_plan_whose_job_was_stopped_before_its_step_holds_after_the_start(world: World) -> None:
    job = running(world)
    world.save(5)
    made = apply(world)
    jobs.stop(job, by="ann")
    world.tick()
    start_again(world)
    for agent in world.agents.values():
        agent.saved_after.clear()
    train_to(world, made.from_step + made.every_steps + 1)
    made.refresh_from_db()
    assert (made.began_at is not None, made.ended_at, made.measured) == (True, None, {})
    assert saved_alike(world)


def failed_rank(world: World) -> Job:
    """A job that waits for a person since a rank of n2 was interrupted; for a minute nobody has stepped."""
    running(world)
    train(world, 20)
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n2"].rank_dies(1, 130)
    world.until(lambda: world.job().state == Job.State.WAITING)
    world.pass_time(60.0)
    for agent in world.agents.values():
        agent.beat()
    world.tick()
    return world.job()


def test_where_a_rank_has_failed_nobody_is_taken_to_go_on_stepping(world: World) -> None:
    job = failed_rank(world)
    newest = max(rank.step or 0 for rank in Rank.objects.all())
    assert announcing.expected_step(job, step_s=1.0, now=clock.now()) == newest
    made = apply(world)
    assert made.from_step == newest + 10


def test_a_rank_that_does_not_run_is_told_at_its_start_and_puts_nothing_off(world: World) -> None:
    failed_rank(world)
    made = apply(world)
    first = made.from_step
    for _ in range(8):
        world.tick(2.0)
    made.refresh_from_db()
    assert (made.from_step, made.announced) == (first, 1)
    told = OrderRecord.objects.filter(kind="set_period")
    assert {order.node.name for order in told} == {"n1", "n3"}
    assert world.agents["n1"].period[0] == world.agents["n3"].period[0] == made.announced


def test_a_rank_is_heard_of_by_its_steps_and_not_by_its_node(world: World) -> None:
    running(world)
    stuck = world.agents["n2"]
    stuck.replies["set_period"] = lambda order: None
    stuck.stepping = False
    made = apply(world)
    last = Rank.objects.get(rank=1).progress_at
    assert last is not None
    for _ in range(4):
        world.tick(1.0, reconcile_too=False)
    state = plans.take_over(made, now=clock.now())
    assert state.behind == (1,)
    assert state.heard_s == pytest.approx((clock.now() - last).total_seconds())
    assert (clock.now() - last).total_seconds() >= 4.0


def test_a_job_that_is_over_is_not_planned_by_itself(world: World) -> None:
    job = running(world)
    jobs.stop(job, by="ann")
    with pytest.raises(DomainError, match="over: there is nothing to plan by itself"):
        plans.set_auto(job, by="ann", **LIMITS)  # type: ignore[arg-type]
    assert not AutoPlan.objects.exists()
