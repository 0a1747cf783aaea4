"""A plan is announced, heard of by every rank before it holds, and kept with all it came from."""

import pytest

from reliability.domain.planner.answer import answer
from reliability.errors import DomainError, InvalidInput
from reliability.models import Epoch, Failover, Job, OrderRecord, Plan, Rank
from reliability.selectors import plan_inputs
from reliability.services import clock, jobs, plans
from reliability.services.plans import announcing
from tests.services.planning import STALL, apply, request, running, saved_alike, slower, train, train_to
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def plan(version: int = 1) -> Plan:
    return Plan.objects.get(version=version)


def test_a_period_is_announced_ahead_of_the_newest_step_and_told_to_every_node(world: World) -> None:
    running(world)
    newest = max(rank.step or 0 for rank in world.job().ranks.all())
    made = apply(world)
    assert made.from_step >= newest + 10  # at least 10 s of steps of 1 s
    assert made.newest_step >= newest
    assert world.job().period_plan == [
        {"from_step": 0, "every_steps": 20},
        {"from_step": made.from_step, "every_steps": made.every_steps},
    ]
    world.tick()
    told = [order for agent in world.agents.values() for order in agent.heard_orders if order.kind == "set_period"]
    assert {order.node for order in told} == {"n1", "n2", "n3"}


def test_all_ranks_save_after_the_same_steps_and_the_plan_is_in_force_from_its_step_on(world: World) -> None:
    running(world)
    made = apply(world)
    told = plans.take_over(made, now=clock.now())
    assert (told.following, told.ranks, told.done, told.begun) == (0, 3, False, False)
    assert told.told.startswith("0 of 3 ranks follow it; the 3 others were last heard 0 s ago; it holds from step")
    train(world, 5)
    told = plans.take_over(made, now=clock.now())
    assert (told.following, told.done, told.behind) == (3, True, ())
    assert told.told == f"3 of 3 ranks follow it; it holds from step {made.from_step} on"
    train_to(world, made.from_step + 2 * made.every_steps)
    assert saved_alike(world)
    saved = world.agents["n1"].saved_after
    assert [step for step in saved if step >= made.from_step] == [
        step for step in range(made.from_step, saved[-1] + 1) if step % made.every_steps == 0
    ]
    made.refresh_from_db()
    assert made.began_step is not None
    assert made.from_step <= made.began_step <= made.from_step + 5
    assert plans.take_over(made, now=clock.now()).told == "3 of 3 ranks follow it"


def test_what_it_came_from_is_kept_with_the_plan(world: World) -> None:
    job = running(world)
    made = apply(world)
    found = answer(request(step_s=1.0, period_s=20 * 1.0 + 0.1))
    assert made.inputs == {"save_stall": dict(STALL)}
    assert made.outputs["steps"]["every_steps"] == made.every_steps == found.steps.every_steps  # type: ignore[union-attr]
    assert made.outputs["inputs"]["sources"] == {"save_stall": dict(STALL)}
    assert made.period_s == pytest.approx(made.every_steps * 1.0 + 0.1)
    assert made.planned_ettr == pytest.approx(found.steps.ettr)  # type: ignore[union-attr]
    assert (made.applied_by, made.applied_at, made.automatic) == ("ann", clock.now(), False)
    assert (made.target, made.step_s, made.epoch) == (0.95, pytest.approx(1.0), job.epoch)


def test_every_value_is_kept_with_who_or_what_it_came_from(world: World) -> None:
    job = running(world)
    known = plan_inputs.known(job, now=clock.now())
    found = plans.sources(known, {"save_stall": 0.25}, by="ann")
    assert set(found) == set(plan_inputs.NAMES)
    assert found["save_stall"] == {"value": 0.25, "source": "entered", "told": "entered by ann", "by": "ann"}
    assert (found["nodes"]["source"], found["nodes"]["by"]) == ("measured", "")
    assert found["recovery"]["told"].startswith("default:")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": 0.9999}, "target of 0.9999 cannot be kept: at best"),
        ({"save_stall_s": 1e-4, "mtbf_s": 20.0, "recovery_s": 0.01, "target": 0.99}, "whole number of steps of 1 s"),
    ],
)
def test_a_target_that_cannot_be_kept_is_not_applied(world: World, values: dict[str, float], message: str) -> None:
    running(world)
    with pytest.raises(DomainError, match=message):
        apply(world, **values)
    assert not Plan.objects.exists()
    assert world.job().every_steps == 20


def test_a_job_whose_speed_is_unknown_cannot_be_planned(world: World) -> None:
    job = world.submit()
    with pytest.raises(DomainError, match="speed"):
        plans.apply(job, request=request(), sources={}, by="ann")


def test_a_job_that_is_over_cannot_be_planned(world: World) -> None:
    job = running(world)
    jobs.stop(job, by="ann")
    with pytest.raises(DomainError, match="over"):
        apply(world)


def test_what_was_shown_is_ordered_unless_the_speed_has_changed(world: World) -> None:
    job = running(world)
    now = answer(request(step_s=1.0)).steps.every_steps  # type: ignore[union-attr]
    slower(job, 1.1)
    made = plans.apply(job, request=request(), sources={}, by="ann", shown=now)
    assert made.every_steps == now
    slower(job, 2.0)
    with pytest.raises(DomainError, match="as shown"):
        plans.apply(job, request=request(), sources={}, by="bob", shown=now)
    assert Plan.objects.count() == 1


def test_values_that_cannot_be_planned_with_name_their_field(world: World) -> None:
    running(world)
    with pytest.raises(InvalidInput, match="save_stall_s"):
        apply(world, save_stall_s=-1.0)


def test_pressed_twice_it_is_one_plan(world: World) -> None:
    running(world)
    first = apply(world)
    world.tick()
    assert apply(world) == first
    assert Plan.objects.count() == 1
    assert apply(world, by="bob") != first
    world.pass_time(60.0)
    assert apply(world, by="bob").version == 3


def test_two_plans_in_quick_succession_leave_all_ranks_with_the_second(world: World) -> None:
    running(world)
    first = apply(world)
    second = apply(world, target=0.9, mtbf_s=100.0)
    assert second.every_steps != first.every_steps
    train_to(world, second.from_step + second.every_steps + 3)
    assert saved_alike(world)
    assert world.job().period_plan[-1] == {"from_step": second.from_step, "every_steps": second.every_steps}
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.measured["verdict"] == "never in force"
    assert second.began_at is not None


def test_a_second_plan_before_the_first_holds_goes_on_from_it_once_all_have_heard_of_it(world: World) -> None:
    running(world)
    first = apply(world)
    train(world, 4)
    second = apply(world, mtbf_s=100.0, target=0.85)
    assert [entry["from_step"] for entry in world.job().period_plan] == [0, first.from_step, second.from_step]
    train_to(world, second.from_step + 12)
    assert saved_alike(world)


def test_a_plan_that_one_node_has_not_heard_of_is_put_off_for_all(world: World) -> None:
    running(world)
    world.agents["n2"].replies["set_period"] = lambda order: None
    made = apply(world)
    first_step = made.from_step
    train_to(world, first_step + 5)
    made.refresh_from_db()
    assert made.from_step > first_step + 5
    assert made.began_at is None
    assert saved_alike(world)
    told = plans.take_over(made, now=clock.now())
    assert (told.following, told.behind) == (2, (1,))
    assert "2 of 3 ranks follow it; rank 1 was last heard" in told.told
    del world.agents["n2"].replies["set_period"]
    train_to(world, made.from_step)
    made.refresh_from_db()
    train_to(world, made.from_step + 2 * made.every_steps)
    assert saved_alike(world)
    made.refresh_from_db()
    assert made.began_at is not None


def test_a_node_that_answered_without_its_ranks_taking_over_is_told_again(world: World) -> None:
    running(world)
    deaf = world.agents["n3"]
    deaf.replies["set_period"] = lambda order: {"status": "done"}
    made = apply(world)
    train(world, 4)
    del deaf.replies["set_period"]
    train_to(world, made.from_step)
    made.refresh_from_db()
    train_to(world, made.from_step + 10)
    assert saved_alike(world)
    assert plans.take_over(made, now=clock.now()).done


def test_a_node_that_was_away_for_longer_than_an_order_lives_hears_of_it_when_it_is_back(world: World) -> None:
    running(world)
    world.agents["n2"].replies["set_period"] = lambda order: None
    made = apply(world)
    for _ in range(25):
        world.tick(3.0)
    del world.agents["n2"].replies["set_period"]
    world.until(lambda: plans.take_over(plan(), now=clock.now()).done, seconds=200.0, tick_s=1.0)
    made.refresh_from_db()
    train_to(world, made.from_step + 1)
    assert saved_alike(world)
    orders = OrderRecord.objects.filter(kind="set_period", node__name="n2").count()
    assert orders < 20  # the longer it waits, the seldomer it is announced anew


def test_how_far_ranks_may_be_counts_from_their_last_word(world: World) -> None:
    job = running(world)
    newest = max(Rank.objects.values_list("step", flat=True))
    heard_at = max(at for at in Rank.objects.values_list("progress_at", flat=True) if at)
    world.pass_time(3.0)
    since_s = (clock.now() - heard_at).total_seconds()
    assert announcing.expected_step(job, step_s=1.0, now=clock.now()) == pytest.approx(newest + since_s, abs=1)


def test_a_plan_applied_while_a_recovery_is_under_way_holds_for_the_new_attempt_on_all_ranks(world: World) -> None:
    running(world)
    train(world, 20)
    world.save(20)
    world.agents["n2"].replies["restore"] = lambda order: None
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: Failover.objects.filter(state="restoring").exists())
    made = apply(world)
    assert not OrderRecord.objects.filter(kind="set_period").exists()
    del world.agents["n2"].replies["restore"]
    world.recover()
    assert Epoch.objects.count() == 2
    train(world, 3)
    assert plans.take_over(made, now=clock.now()).done
    for agent in world.agents.values():
        agent.saved_after.clear()
    train_to(world, made.from_step + 2 * made.every_steps)
    assert saved_alike(world)
    made.refresh_from_db()
    assert made.began_at is not None


def test_a_start_that_was_ordered_before_the_plan_does_not_leave_a_rank_behind(world: World) -> None:
    running(world)
    train(world, 20)
    world.save(20)
    late = world.agents["n2"]
    late.replies["start"] = lambda order: None
    late.rank_dies(1, 139)
    world.until(lambda: Failover.objects.filter(state="starting").exists())
    made = apply(world)
    del late.replies["start"]
    world.recover()
    train_to(world, made.from_step)
    made.refresh_from_db()
    for agent in world.agents.values():
        agent.saved_after.clear()
    train_to(world, made.from_step + 2 * made.every_steps)
    assert plans.take_over(made, now=clock.now()).done
    assert saved_alike(world)


def test_an_epoch_change_between_the_announcement_and_its_step_changes_nothing_in_what_was_announced(
    world: World,
) -> None:
    running(world)
    train(world, 20)
    world.save(20)
    made = apply(world)
    train(world, 5)
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    assert max(Rank.objects.values_list("step", flat=True)) < made.from_step
    for agent in world.agents.values():
        agent.saved_after.clear()
    train_to(world, made.from_step + made.every_steps + 5)
    assert saved_alike(world)
    made.refresh_from_db()
    assert made.began_at is not None


def test_a_restart_from_before_the_step_saves_as_it_did_then(world: World) -> None:
    running(world)
    train(world, 20)
    world.save(20)
    made = apply(world)
    train_to(world, made.from_step + 5)
    for agent in world.agents.values():
        agent.saved_after.clear()
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    train_to(world, made.from_step + 10)
    saved = sorted(set(world.agents["n1"].saved_after))
    assert saved_alike(world)
    assert [step for step in saved if step < made.from_step] == list(range(40, made.from_step, 20))


def test_an_order_of_an_attempt_that_is_over_is_not_sent_any_more(world: World) -> None:
    running(world)
    train(world, 20)
    world.save(20)
    world.agents["n2"].replies["set_period"] = lambda order: None
    apply(world)
    world.tick()
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: Job.objects.get().epoch == 2)
    assert not OrderRecord.objects.filter(kind="set_period", state="pending", epoch=1).exists()
