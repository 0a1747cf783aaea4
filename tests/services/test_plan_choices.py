"""What a person may order: another period than is computed, a missed target; but nothing over a plan not seen."""

from typing import Any

import pytest

from reliability.domain.planner.answer import answer
from reliability.errors import DomainError, InvalidInput, StaleProposal
from reliability.models import Plan
from reliability.services import plans
from tests.services.planning import apply, request, running, saved_alike, train_to
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
OUT_OF_REACH = {"target": 0.9999}


def test_the_best_there_is_may_be_applied_when_the_target_is_out_of_reach_and_the_plan_says_so(world: World) -> None:
    running(world)
    with pytest.raises(DomainError, match="cannot be kept"):
        apply(world, **OUT_OF_REACH)
    made = apply(world, accept_missed=True, **OUT_OF_REACH)
    best = answer(request(step_s=1.0, **OUT_OF_REACH))
    assert best.steps is not None
    assert made.every_steps == best.steps.every_steps
    assert made.planned_ettr < made.target
    assert made.reason == "It misses the target of 0.9999, which ann accepted."


def test_a_target_that_is_reached_needs_no_acceptance_and_none_is_noted(world: World) -> None:
    running(world)
    made = apply(world, accept_missed=True)
    assert made.reason == ""
    assert made.planned_ettr >= made.target


def test_no_best_period_is_invented_where_there_is_none(world: World) -> None:
    running(world)
    with pytest.raises(DomainError, match="cannot be kept") as refused:
        apply(world, accept_missed=True, mtbf_s=None, cluster_availability=0.5)
    assert refused.value.hint.startswith("Nothing was applied: no period is the best one.")
    assert not Plan.objects.exists()


def test_a_period_that_a_person_chose_is_ordered_and_kept_with_who_chose_it(world: World) -> None:
    running(world)
    made = apply(world, chosen_steps=7, shown=999)
    assert made.every_steps == 7
    assert made.inputs["period"] == {
        "value": pytest.approx(7.1), "source": "entered", "told": "every 7 steps, chosen by ann", "by": "ann",
    }  # fmt: skip
    assert made.reason == "Every 7 steps, chosen by ann."
    assert not made.automatic
    train_to(world, made.from_step + 8)
    assert saved_alike(world)
    made.refresh_from_db()
    assert made.began_at is not None


def test_a_chosen_period_that_misses_the_target_must_be_accepted(world: World) -> None:
    running(world)
    with pytest.raises(DomainError, match="every 400 steps misses the target"):
        apply(world, chosen_steps=400)
    made = apply(world, chosen_steps=400, accept_missed=True)
    assert made.reason == "Every 400 steps, chosen by ann. It misses the target of 0.95, which ann accepted."


@pytest.mark.parametrize(("name", "field"), [("chosen_steps", "period"), ("shown", "every_steps")])
def test_what_is_no_number_of_steps_or_too_many_is_refused_at_its_field(world: World, name: str, field: str) -> None:
    running(world)
    wrong: list[Any] = [0, -1, -(10**5000), plans.MOST_STEPS + 1, 2**31, 10**30, 10**5000, True, 2.5]
    for steps in wrong:
        with pytest.raises(InvalidInput) as refused:
            apply(world, accept_missed=True, **{name: steps})
        assert refused.value.field == field
        assert "speed" not in refused.value.message
        assert "10,000,000" in refused.value.hint
    assert not Plan.objects.exists()


def test_the_most_steps_there_may_be_can_be_kept_and_announced(world: World) -> None:
    running(world)
    made = apply(world, chosen_steps=plans.MOST_STEPS, accept_missed=True)
    made.refresh_from_db()
    assert world.job().period_plan[-1] == {"from_step": made.from_step, "every_steps": plans.MOST_STEPS}


def test_a_computed_period_of_more_steps_than_that_is_not_ordered(world: World) -> None:
    job = running(world)
    job.ranks.update(step_s=1e-6)
    with pytest.raises(DomainError, match="steps is more than the 10,000,000"):
        apply(world, save_stall_s=100.0, mtbf_s=1e6, target=0.5)


def test_a_period_within_which_no_copy_becomes_durable_is_refused(world: World) -> None:
    running(world)
    with pytest.raises(InvalidInput, match="before the last copy is durable, which takes 30 s") as refused:
        apply(world, chosen_steps=20, drain_s=30.0, target=0.5)
    assert (refused.value.field, refused.value.hint) == ("period", "Give 30 steps or more.")
    assert apply(world, chosen_steps=30, drain_s=30.0, target=0.5).every_steps == 30


def test_a_plan_is_not_applied_over_one_that_the_person_has_not_seen(world: World) -> None:
    running(world)
    first = apply(world, seen=0)
    with pytest.raises(StaleProposal, match=f"Plan 1, every {first.every_steps} steps, was applied by ann"):
        apply(world, by="bob", seen=0, mtbf_s=100.0, target=0.85)
    assert apply(world, by="bob", seen=1, mtbf_s=100.0, target=0.85).version == 2


def test_two_people_who_apply_the_same_make_one_plan(world: World) -> None:
    running(world)
    first = apply(world, seen=0)
    assert apply(world, by="bob", seen=0) == first
    world.pass_time(60.0)
    assert apply(world, by="bob", seen=0) == first
    assert apply(world, by="bob", seen=1).version == 2  # seen and wanted all the same
