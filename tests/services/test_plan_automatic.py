"""A job that is planned anew by itself: within limits, with reason, and never against a person."""

import pytest
from celery import current_app

from reliability.errors import InvalidInput
from reliability.models import AutoPlan, Epoch, Job, Plan, Rank
from reliability.services import clock, jobs, plans
from tests.services.planning import apply, running, slower, train_to
from tests.services.test_plan_history import every, recovered
from tests.services.test_plan_inputs import saved
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
DAY_S = 86400.0
LIMITS = {"target": 0.9, "shortest_period_s": 2.0, "longest_period_s": 600.0}


def measured_job(world: World, *, faults: int = 200) -> Job:
    """A job that saved every 20 s, failed every 500 s, and stood still 0.1 s at each save: 10 s were best."""
    job = running(world)
    world.pass_time(500.0 * (faults + 1))
    saved(job, 20, (0.1, 0.1, 0.1))
    began = Epoch.objects.get(job=job).running_at
    assert began is not None
    recovered(job, every(500.0, faults, began), took_s=0.01, lost=0)
    Rank.objects.update(epoch=job.epoch, progress_at=clock.now())
    for agent in world.agents.values():
        agent.epoch = job.epoch if agent.ranks else 0
        agent.beat()
    world.tick(1.0)
    return world.job()


def automatic(job: Job, **values: float) -> AutoPlan:
    return plans.set_auto(job, by="ann", **{**LIMITS, **values})  # type: ignore[arg-type]


def look(world: World) -> tuple[Plan | None, str]:
    """Plan anew, and return what was made and what is told about it."""
    made = plans.replan(world.job(), clock.now())
    return made, AutoPlan.objects.get().last_outcome


def test_a_period_that_loses_is_changed_with_its_reason_and_its_sources(world: World) -> None:
    job = measured_job(world)
    automatic(job)
    made, told = look(world)
    assert made is not None, told
    assert made.every_steps == pytest.approx(10, abs=1)
    assert made.automatic
    assert made.applied_by == "automatic, within the limits of ann"
    assert made.reason == told
    assert told.startswith("A period of 1")
    assert made.inputs["save_stall"]["source"] == "measured"
    assert made.inputs["mtbf"]["told"].startswith("measured from lm over the last 28 h: 200 faults in 28 h of training")
    assert made.inputs["target"] == {
        "value": 0.9, "source": "entered", "told": "confirmed by ann for automatic plans", "by": "ann",
    }  # fmt: skip
    assert AutoPlan.objects.get().last_looked_at == clock.now()
    train_to(world, made.from_step + 2)
    made.refresh_from_db()
    assert made.began_at is not None


def test_nothing_is_changed_while_what_decides_is_merely_assumed(world: World) -> None:
    job = running(world)
    automatic(job)
    made, told = look(world)
    assert made is None
    assert told == (
        "No change: not measured yet, and confirmed by nobody: how long a save stalls and how often the job fails."
    )
    saved(job, 20, (0.1, 0.1, 0.1))
    assert look(world)[1] == "No change: not measured yet, and confirmed by nobody: how often the job fails."


def test_what_a_person_confirmed_stands_in_until_it_is_measured(world: World) -> None:
    job = running(world)
    plans.set_auto(job, by="ann", **LIMITS, confirmed={"save_stall": 0.1, "mtbf": 500.0})
    made, told = look(world)
    assert made is not None, told
    assert made.inputs["mtbf"] == {
        "value": 500.0, "source": "entered", "told": "confirmed by ann for automatic plans", "by": "ann",
    }  # fmt: skip
    assert made.inputs["recovery"]["source"] == "default"


def test_what_is_measured_wins_over_what_was_confirmed(world: World) -> None:
    job = measured_job(world)
    plans.set_auto(job, by="ann", **LIMITS, confirmed={"save_stall": 50.0, "mtbf": 1.0})
    made, told = look(world)
    assert made is not None, told
    assert made.inputs["save_stall"]["value"] == pytest.approx(0.1)


def test_limits_hold(world: World) -> None:
    job = measured_job(world)
    automatic(job, shortest_period_s=15.0)
    made, told = look(world)
    assert made is not None, told
    assert made.every_steps == 15
    assert made.period_s >= 15.0


def test_one_change_is_followed_by_none_for_the_least_interval(world: World) -> None:
    job = measured_job(world)
    automatic(job, least_interval_s=600.0)
    made, _ = look(world)
    assert made is not None
    assert look(world)[1] == "No change: plan 1 is not in force yet."
    train_to(world, made.from_step + 1)
    made.refresh_from_db()
    assert made.began_at is not None
    slower(world.job(), 4.0)
    assert look(world)[1].startswith("No change: plan 1 was applied ")
    assert "looked at again in" in look(world)[1]
    world.pass_time(600.0)
    slower(world.job(), 4.0)
    again, told = look(world)
    assert again is not None, told
    assert again.every_steps == pytest.approx(10 / 4, abs=1)


def test_a_plan_made_by_hand_is_left_alone_for_as_long(world: World) -> None:
    job = measured_job(world)
    automatic(job, least_interval_s=600.0)
    by_hand = apply(world, mtbf_s=20_000.0)
    train_to(world, by_hand.from_step + 1)
    assert look(world)[0] is None
    world.pass_time(700.0)
    Rank.objects.update(progress_at=clock.now())
    assert look(world)[0] is not None


def test_a_target_that_cannot_be_kept_is_left_to_a_person(world: World) -> None:
    job = measured_job(world)
    automatic(job, target=0.995)
    made, told = look(world)
    assert made is None
    assert "cannot be kept" in told


def test_a_job_that_does_not_run_is_left_alone_and_that_is_told(world: World) -> None:
    job = measured_job(world)
    automatic(job)
    Job.objects.update(state=Job.State.WAITING)
    assert look(world) == (None, "No change: the job is waiting for a person.")
    plans.replan_all(clock.now())
    jobs.stop(world.job(), by="ann")
    assert look(world)[0] is None


def test_once_stopped_nothing_is_looked_at_any_more(world: World) -> None:
    job = measured_job(world)
    automatic(job)
    stopped = plans.stop_auto(job, by="bob")
    assert stopped is not None
    assert (stopped.enabled, stopped.last_outcome) == (False, "Stopped by bob.")
    assert look(world) == (None, "Stopped by bob.")
    assert automatic(job).enabled
    assert AutoPlan.objects.count() == 1


def test_a_job_without_automatic_plans_has_nothing_to_stop(world: World) -> None:
    job = world.submit()
    assert plans.stop_auto(job, by="ann") is None
    assert plans.replan(job, clock.now()) is None


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"target": 97.0}, "target"),
        ({"target": 1.0}, "target"),
        ({"shortest_period_s": 0.0}, "shortest_period"),
        ({"longest_period_s": 1.0}, "longest_period"),
        ({"change_ratio": 1.0}, "change_ratio"),
        ({"least_interval_s": -1.0}, "least_interval"),
        ({"confirmed": {"mtbf": 0.0}}, "confirmed.mtbf"),
        ({"confirmed": {"save_stall": -1.0}}, "confirmed.save_stall"),
        ({"confirmed": {"nodes": 3.0}}, "confirmed.nodes"),
    ],
)
def test_limits_that_cannot_be_are_refused_by_field(world: World, values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plans.set_auto(world.submit(), by="ann", **{**LIMITS, **values})  # type: ignore[arg-type]
    assert refused.value.field == field
    assert not AutoPlan.objects.exists()


def test_a_job_that_cannot_be_planned_does_not_hold_up_the_others(world: World) -> None:
    job = measured_job(world)
    automatic(job)
    other = Job.objects.create(
        name="broken", nodes=1, state="running", runtime="process", program=[], storage_dir="/x", created_at=clock.now()
    )
    automatic(other)
    Job.objects.filter(pk=other.pk).update(name="a-broken-one")
    plans.replan_all(clock.now())
    assert Plan.objects.filter(job=job).exists()
    assert "not measured yet" in AutoPlan.objects.get(job=other).last_outcome


def test_beat_looks_every_minute_and_the_task_only_calls_the_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reliability import tasks

    entry = current_app.conf.beat_schedule["replan"]
    assert (entry["task"], entry["schedule"].seconds) == ("controller.replan", 60.0)
    seen = []
    monkeypatch.setattr(plans, "replan_all", seen.append)
    tasks.replan()
    assert seen == [clock.now()]
