"""What came of a plan: measured while it was in force, compared by what chance alone may do, kept when it is over."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from reliability.domain.planner import exact
from reliability.models import Drill, Epoch, Failover, Incident, Job, Node, Plan, Rank
from reliability.selectors import plan_history
from reliability.services import clock, jobs, plans
from tests.services.planning import apply, in_force, running, train
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
DAY_S = 86400.0


def steps(world: World, count: int) -> None:
    """Have every rank be so many steps further, as of now."""
    step = Rank.objects.get(rank=0).step or 0
    Rank.objects.update(step=step + count, progress_at=clock.now())


def recovered(job: Job, faults: Iterable[datetime], *, took_s: float, lost: int, drill: bool = False) -> None:
    """Faults that were recovered from: each time the next attempt began where the last one had saved."""
    took = timedelta(seconds=took_s)
    ats, first = list(faults), job.epoch
    epochs = range(first, first + len(ats))
    common: dict[str, Any] = {"job": job, "kind": "restart_in_place", "state": "completed", "fault_step": 10_000}
    incidents = Incident.objects.bulk_create(
        Incident(job=job, epoch=epoch, action="restart_in_place", opened_at=at)
        for epoch, at in zip(epochs, ats, strict=True)
    )
    failovers = Failover.objects.bulk_create(
        Failover(
            **common,
            **dict.fromkeys(("state_since", "fault_at", "created_at"), at),
            incident=incident,
            from_epoch=epoch,
            to_epoch=epoch + 1,
            restore_step=10_000 - lost,
            ended_at=at + took,
        )
        for incident, epoch, at in zip(incidents, epochs, ats, strict=True)
    )
    Epoch.objects.filter(job=job, number=first).update(stopped_at=ats[0])
    Epoch.objects.bulk_create(
        Epoch(job=job, number=epoch + 1, started_at=at + took, running_at=at + took, stopped_at=stopped)
        for epoch, at, stopped in zip(epochs, ats, [*ats[1:], None], strict=True)
    )
    job.epoch = first + len(ats)
    Job.objects.filter(pk=job.pk).update(epoch=job.epoch)
    if drill:
        each = {"job": job, "node": Node.objects.get(name="n1"), "what": "kill_rank", "started_by": "ann"}
        Drill.objects.bulk_create(
            Drill(**each, failover=failover, started_at=failover.fault_at, state="recovered") for failover in failovers
        )


def every(seconds: float, count: int, began: datetime) -> list[datetime]:
    """So many instants, so far apart."""
    return [began + timedelta(seconds=seconds * (number + 1)) for number in range(count)]


def result(made: Plan) -> plan_history.PlanResult:
    return plan_history.result(Plan.objects.select_related("job").get(pk=made.pk), now=clock.now())


def test_a_plan_that_is_not_in_force_has_nothing_to_tell(world: World) -> None:
    running(world)
    found = result(apply(world))
    assert (found.measured, found.verdict, found.told) == (None, "too early to say", "It is not in force yet.")


def test_lost_steps_saves_and_standstill_are_what_is_missing(world: World) -> None:
    job = running(world)
    made = in_force(world)
    assert made.began_at is not None
    began = made.began_at
    world.pass_time(DAY_S)
    # 80 recoveries of 60 s with 5 lost steps each; a save of 0.1 s after every made.every_steps steps of 1 s
    recovered(job, every(1000.0, 80, began), took_s=60.0, lost=5)
    ran_s = (clock.now() - began).total_seconds() - 80 * 60.0
    executed = round(ran_s / (1.0 + 0.1 / made.every_steps))
    steps(world, executed - 80 * 5 - ((Rank.objects.get(rank=0).step or 0) - (made.began_step or 0)))
    found = result(made)
    window_s = ran_s + 80 * 60.0
    assert found.window_s == pytest.approx(window_s)
    assert found.measured == pytest.approx((executed - 400) / window_s, rel=1e-3)  # kept steps x 1 s / elapsed
    assert found.ended_at is None


def test_a_rate_within_two_spreads_is_as_planned_and_says_so(world: World) -> None:
    job = running(world)
    made = in_force(world)
    assert made.began_at is not None
    world.pass_time(3 * DAY_S)
    faults = round(3 * DAY_S / 500.0 * 0.98)
    recovered(job, every(505.0, faults, made.began_at), took_s=5.0, lost=5)
    steps(world, round(3 * DAY_S * 0.97))
    found = result(made)
    assert found.verdict == "as planned"
    assert found.sd is not None
    assert found.sd < 0.002
    assert found.told == "planned 97.0 %, measured 97.1 % +- 0.2 over 3 d: as planned"


@pytest.mark.parametrize(("took_s", "verdict"), [(60.0, "below plan"), (0.001, "above plan")])
def test_a_rate_beyond_the_spread_is_told_as_such(world: World, took_s: float, verdict: str) -> None:
    job = running(world)
    made = in_force(world)
    assert made.began_at is not None
    world.pass_time(3 * DAY_S)
    recovered(job, every(505.0, 500, made.began_at), took_s=took_s, lost=0)
    steps(world, 100_000)
    assert result(made).verdict == verdict


def test_soon_after_its_beginning_it_is_too_early_to_say(world: World) -> None:
    running(world)
    made = in_force(world)
    train(world, 8)
    found = result(made)
    assert found.measured == pytest.approx(1 - 0.1 / (made.every_steps + 0.1), abs=0.02)
    assert found.verdict == "too early to say"


def test_what_is_expected_counts_the_tiers_that_the_plan_was_made_with(world: World) -> None:
    running(world)
    made = in_force(world, drain_s=40.0, drain_ssd_s=2.0, node_share=0.25, memory_share=0.5, target=0.9)
    assert made.outputs["inputs"]["effective"]["tiers"]
    world.pass_time(DAY_S)
    steps(world, round(DAY_S * 0.96))
    found = result(made)
    assert found.sd is not None
    assert made.planned_ettr == pytest.approx(exact.ettr_at(plan_history._inputs(made), made.period_s))


def test_drills_are_left_out_with_all_they_cost(world: World) -> None:
    job = running(world)
    made = in_force(world)
    assert made.began_at is not None
    world.pass_time(DAY_S)
    recovered(job, every(1000.0, 50, made.began_at), took_s=500.0, lost=9, drill=True)
    steps(world, 60_000)
    found = result(made)
    assert found.window_s == pytest.approx(DAY_S - 25_000.0, rel=0.01)
    assert found.measured == pytest.approx(1 - 0.1 / made.every_steps, abs=1e-3)


def test_the_time_in_which_people_had_stopped_the_job_is_left_out(world: World) -> None:
    job = running(world)
    world.save(5)
    made = in_force(world)
    world.pass_time(3600.0)
    steps(world, 3500)
    jobs.stop(job, by="ann")
    world.pass_time(5 * DAY_S)
    found = result(made)
    assert found.window_s == pytest.approx(3600.0, rel=0.01)
    assert found.measured == pytest.approx(0.99, abs=0.005)


def test_while_a_recovery_is_open_its_lost_steps_and_its_time_count(world: World) -> None:
    running(world)
    made = in_force(world)
    world.save(Rank.objects.get(rank=0).step or 0)
    train(world, 40)
    before = result(made)
    assert before.measured is not None
    world.agents["n2"].replies["restore"] = lambda order: None
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: Failover.objects.filter(state="restoring").exists())
    for _ in range(3):
        world.tick(3.0)
    during = result(made)
    assert during.measured is not None
    assert during.measured < before.measured / 3  # nearly all steps since the plan began are lost
    assert during.window_s > before.window_s + 8.0


def test_what_came_of_a_plan_is_kept_when_the_next_one_is_in_force(world: World) -> None:
    running(world)
    first = in_force(world)
    train(world, 30)
    second = in_force(world, mtbf_s=100.0, target=0.85)
    first.refresh_from_db()
    assert (first.ended_at, first.ended_step) == (second.began_at, second.began_step)
    assert first.measured["kept_steps"] == (second.began_step or 0) - (first.began_step or 0)
    found = result(first)
    assert found.frozen
    assert (found.measured, found.told) == (first.measured["ettr"], first.measured["told"])
    kept = dict(first.measured)
    train(world, 10)
    plans.freeze(first)
    first.refresh_from_db()
    assert first.measured == kept
    newest, oldest = plan_history.history(world.job(), now=clock.now())
    assert (newest.plan, newest.frozen, oldest.plan) == (second, False, first)
