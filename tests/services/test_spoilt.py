"""What was saved since a loss was no number is distrusted by a recovery because of it, and by nothing else."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from reliability.models import Decision, Failover, Finding, Incident, Snapshot
from reliability.services import clock, fault_codes, incidents, maintenance, modes
from reliability.services.failovers import approve, propose_again
from reliability.services.modes import Scope
from tests.services.test_watching import eight_ranks, go_on, pass_seconds, tell
from tests.services.world import World, approver

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."


def by_rule(world: World) -> None:
    scope = Scope(reach="code", name="loss-no-number")
    modes.set_mode(scope, mode="shadow", by="ada", reason="to see how it does")
    eight_ranks(world)


def by_policy(world: World) -> None:
    eight_ranks(world, class_actions={"application": "observe"})


def by_plan(world: World) -> None:
    eight_ranks(world)
    ends = clock.now() + timedelta(minutes=10)
    plan = maintenance.Plan(scope="nodes", nodes=["n1"], reason="new firmware", ends_at=ends)
    maintenance.plan(plan, by="ann")


def _breaks(world: World, *, action: str = "restart_in_place") -> None:
    """Save steps 5, 6 and 8; from step 6 on the loss is no number."""
    fault_codes.change("loss-no-number", values={"action": action}, by="ann", reason="restart")
    for step in (5, 6, 8):
        world.save(step)
    tell(world, 3, bad_loss={"count": 2, "first": 6, "last": 7})
    pass_seconds(world, 3)


def distrusted() -> set[int]:
    return set(Snapshot.objects.filter(distrusted=True).values_list("step", flat=True))


@pytest.mark.parametrize("start", [by_rule, by_policy, by_plan])
def test_a_loss_that_is_only_observed_spoils_no_snapshot_also_when_something_else_moves_the_job(
    world: World, start: Callable[[World], None]
) -> None:
    start(world)
    _breaks(world)
    world.save(9)
    pass_seconds(world, 3)
    assert Finding.objects.filter(code="loss-no-number").exists()
    assert not Failover.objects.exists()
    assert distrusted() == set()
    go_on(world)
    world.agents["n2"].report("finding", {"code": "xid-79", "evidence": XID, "count": 1})
    recovery = world.recover()
    assert (recovery.state, recovery.restore_step, distrusted()) == ("completed", 9, set())


def test_what_is_saved_while_a_person_is_asked_is_distrusted_too(world: World) -> None:
    scope = Scope(reach="code", name="loss-no-number")
    modes.set_mode(scope, mode="propose", by="ada", reason="to see how it does")
    eight_ranks(world)
    _breaks(world)
    request = Failover.objects.get()
    assert (request.state, request.restore_step, distrusted()) == ("awaiting_approval", 5, {6, 8})
    go_on(world)
    world.save(9)
    world.tick(1)
    request = world.failover()
    assert (request.restore_step, distrusted()) == (5, {6, 8, 9})
    approve(request, by=approver(), digest=request.digest)
    assert world.recover().restore_step == 5


def test_a_job_held_for_it_goes_back_before_it_only_when_a_person_has_it_go_on(world: World) -> None:
    eight_ranks(world)
    _breaks(world, action="hold")
    assert (world.job().state, distrusted()) == ("waiting", set())
    go_on(world)
    propose_again(world.job(), by=approver())
    assert world.recover().restore_step == 5
    assert distrusted() == {6, 8}


def test_a_worse_fault_found_with_it_does_not_bring_back_what_it_spoilt(world: World) -> None:
    eight_ranks(world)
    fault_codes.change("loss-no-number", values={"action": "restart_in_place"}, by="ann", reason="restart")
    for step in (5, 6, 8):
        world.save(step)
    job = world.job()
    for code, name, fields in (("loss-no-number", "n1", {"step": 6}), ("xid-79", "n2", None)):
        node = world.agents[name].node
        incidents.note(node, code, job=job, epoch=job.epoch, rank=0 if name == "n1" else None, fields=fields)
    incidents.judge(job.pk)
    assert (Incident.objects.get().code, Decision.objects.get().action) == ("xid-79", "failover")
    assert (Failover.objects.get().restore_step, distrusted()) == (5, {6, 8})
