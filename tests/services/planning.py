"""What the tests of plans ask for, and how they let a job train."""

from typing import Any

from reliability.domain.planner.request import Request
from reliability.models import Job, Plan, Rank
from reliability.services import clock, orders, plans
from reliability.services.plans import Source
from tests.services.world import World

STALL: Source = {"value": 0.1, "source": "entered", "told": "entered by ann", "by": "ann"}


def request(**values: Any) -> Request:
    """A request that gives a period of about 10 s."""
    base: dict[str, Any] = {"save_stall_s": 0.1, "mtbf_s": 500.0, "recovery_s": 5.0, "target": 0.95}
    return Request(**{**base, **values})


def apply(
    world: World,
    *,
    by: str = "ann",
    shown: int | None = None,
    accept_missed: bool = False,
    chosen_steps: int | None = None,
    seen: int | None = None,
    **values: Any,
) -> Plan:
    """Apply the plan of a request to the job."""
    how: dict[str, Any] = {"shown": shown, "accept_missed": accept_missed, "chosen_steps": chosen_steps, "seen": seen}
    return plans.apply(world.job(), request=request(**values), sources={"save_stall": STALL}, by=by, **how)


def running(world: World, **spec: Any) -> Job:
    """Start the job; a step takes a second, and it saves every 20."""
    world.step_s = 1.0
    world.running_job(**spec)
    train(world, 5)
    return world.job()


def train(world: World, steps: int) -> None:
    """Let all agents make so many steps."""
    for _ in range(steps):
        step(world)


def step(world: World) -> None:
    """Let all agents make a step, while the controller does of all its work what concerns plans."""
    world.tick(world.step_s, reconcile_too=False)
    orders.expire(clock.now())
    plans.follow_all(clock.now())


def train_to(world: World, step_no: int) -> None:
    """Let all agents make steps until every rank has finished this one."""
    while min(Rank.objects.values_list("step", flat=True)) < step_no:
        step(world)


def in_force(world: World, **values: Any) -> Plan:
    """A plan that all ranks have just begun to go by."""
    made = apply(world, **values)
    train_to(world, made.from_step + 2)
    made.refresh_from_db()
    assert made.began_at is not None
    return made


def saved_alike(world: World, names: tuple[str, ...] = ("n1", "n2", "n3")) -> bool:
    """Return whether the ranks of all these nodes saved after the very same steps."""
    return len({tuple(sorted(set(world.agents[name].saved_after))) for name in names}) == 1


def slower(job: Job, step_s: float) -> None:
    """Have the ranks say that a step takes so long."""
    Rank.objects.filter(job=job).update(step_s=step_s)
