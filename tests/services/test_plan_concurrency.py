"""Two at once: a plan applied by two people, by a person and by itself, or while a recovery begins."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from reliability.models import Job, Plan
from reliability.services import clock, plans
from tests.services.planning import apply, running, train, train_to
from tests.services.test_plan_automatic import LIMITS
from tests.services.world import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
LIMIT_S = 30.0


def together(*work: Callable[[], Any]) -> list[Any]:
    """Do several things at once, each over a connection of its own; return what came of each."""
    came: list[Any] = [None] * len(work)
    line = threading.Barrier(len(work))

    def run(place: int) -> None:
        try:
            line.wait(LIMIT_S)
            came[place] = work[place]()
        except Exception as error:
            came[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return came


def test_a_double_click_is_one_plan(world: World) -> None:
    running(world)
    first, second = together(lambda: apply(world), lambda: apply(world))
    assert first == second
    assert Plan.objects.count() == 1
    assert world.job().period_version == 1


def test_two_people_at_once_are_two_plans_of_which_the_later_holds(world: World) -> None:
    running(world)
    made = together(lambda: apply(world, by="ann"), lambda: apply(world, by="bob", mtbf_s=100.0, target=0.85))
    assert {plan.version for plan in made} == {1, 2}
    last = Plan.objects.get(version=2)
    assert world.job().period_plan[-1] == {"from_step": last.from_step, "every_steps": last.every_steps}
    assert (world.job().every_steps, world.job().period_version) == (last.every_steps, last.announced)
    train_to(world, last.from_step + 1)
    last.refresh_from_db()
    assert last.began_at is not None


def test_a_person_and_the_automatic_plan_at_once_leave_one_of_each_at_most(world: World) -> None:
    job = running(world)
    plans.set_auto(job, by="ann", **LIMITS, confirmed={"save_stall": 0.1, "mtbf": 500.0})
    by_hand, automatic = together(
        lambda: apply(world, by="bob", mtbf_s=100.0, target=0.85), lambda: plans.replan(job, clock.now())
    )
    assert isinstance(by_hand, Plan)
    newest = Plan.objects.get(version=Plan.objects.count())
    assert newest.applied_by == "bob"  # either the only one, or made after the other
    assert automatic is None or automatic.version == 1


def test_two_looks_at_once_make_one_change(world: World) -> None:
    job = running(world)
    plans.set_auto(job, by="ann", **LIMITS, confirmed={"save_stall": 0.1, "mtbf": 500.0})
    made = together(*[lambda: plans.replan(job, clock.now())] * 3)
    assert sum(isinstance(each, Plan) for each in made) == 1
    assert not any(isinstance(each, Exception) for each in made)


def test_two_controllers_that_follow_a_plan_announce_it_once(world: World) -> None:
    running(world)
    for agent in world.agents.values():
        agent.replies["set_period"] = lambda order: None
    made = apply(world)
    train(world, 5)
    announced = made.announced
    world.pass_time(60.0)
    together(*[lambda: plans.follow_all(clock.now())] * 3)
    made.refresh_from_db()
    assert made.announced == announced + 1
    assert Job.objects.get().period_version == made.announced
