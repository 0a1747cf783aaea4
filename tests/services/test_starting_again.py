"""A job that was stopped or has failed goes on from its newest restore point, in a new epoch."""

import pytest

from reliability.errors import DomainError, NoRestorePoint
from reliability.models import Epoch, Job, SnapshotCopy
from reliability.selectors import core
from reliability.services import jobs, restores, snapshot_tally
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _stopped(world: World) -> Job:
    jobs.stop(world.job(), by="ann")
    world.tick()
    return world.job()


def _start(world: World) -> Job:
    jobs.start(world.job(), by="bob")
    world.until(lambda: world.job().state in (Job.State.RUNNING, Job.State.FAILED))
    return world.job()


def test_a_stopped_job_goes_on_on_its_own_nodes_with_what_lies_on_their_disks(world: World) -> None:
    world.running_job()
    world.save(20)
    world.save(40, tiers=("memory", "ssd"))
    world.save(60, tiers=("memory",))
    old = _stopped(world)
    before = core.placement(old)
    job = _start(world)
    assert job.state == Job.State.RUNNING
    assert job.epoch == old.epoch + 1
    assert core.placement(job) == before
    assert set(job.ranks.values_list("restored_step", flat=True)) == {40}
    assert Epoch.objects.get(job=job, number=job.epoch).restored_step == 40
    assert job.storage_step == 20


def test_without_any_snapshot_it_starts_from_nothing(world: World) -> None:
    world.running_job()
    _stopped(world)
    job = _start(world)
    assert job.state == Job.State.RUNNING
    assert set(job.ranks.values_list("restored_step", flat=True)) == {None}


def test_a_copy_that_does_not_verify_makes_it_take_an_older_step(world: World) -> None:
    world.running_job()
    world.save(20)
    world.save(40)
    for tier in ("ssd", "storage"):
        world.agents["n1"].bad_paths.add(f"/{tier}/e1-s40-r0")
    _stopped(world)
    job = _start(world)
    assert set(job.ranks.values_list("restored_step", flat=True)) == {20}
    assert max(list(world.starts()).count(start) for start in world.starts()) == 1


def test_when_nothing_can_be_read_it_is_refused_with_the_reason(world: World) -> None:
    world.running_job()
    world.save(20)
    _stopped(world)
    SnapshotCopy.objects.update(state="lost")
    snapshot_tally.recount_all()
    with pytest.raises(NoRestorePoint, match="No step can be read by every rank"):
        jobs.start(world.job(), by="bob")
    assert world.job().state == Job.State.STOPPED


@pytest.mark.parametrize(("age_s", "refused"), [(60, False), (3600, True)])
def test_work_on_the_disk_of_a_node_that_may_come_back_is_not_given_up_for_a_start_from_nothing(
    world: World, age_s: int, refused: bool
) -> None:
    """Storage was away since the job began. Of the first minutes little is lost; later whoever wants that says so."""
    world.running_job()
    world.save(20, tiers=("memory", "ssd"))
    world.pass_time(age_s)
    place = core.placement(world.job())
    lost = {"placement": place, "lost": ["n3"], "before": world.job().epoch + 1}
    if refused:
        with pytest.raises(NoRestorePoint):
            restores.point(world.job(), **lost)
    else:
        assert restores.point(world.job(), **lost) is None


def test_a_job_that_failed_while_it_was_brought_up_can_be_started_once_more(world: World) -> None:
    world.running_job()
    world.save(20)
    _stopped(world)
    error = {"code": "tier_unreachable", "message": "The storage is away.", "hint": ""}
    world.agents["n2"].replies["restore"] = lambda order: {"status": "failed", "error": error}
    assert "The storage is away." in _start(world).state_reason
    del world.agents["n2"].replies["restore"]
    job = _start(world)
    assert job.state == Job.State.RUNNING
    assert set(job.ranks.values_list("restored_step", flat=True)) == {20}


def test_a_job_that_is_complete_is_not_started_again(world: World) -> None:
    world.running_job()
    Job.objects.update(state=Job.State.COMPLETED)
    with pytest.raises(DomainError, match="completed"):
        jobs.start(world.job(), by="bob")


def test_it_recovers_from_a_fault_after_its_second_start(world: World) -> None:
    world.running_job(restart_budget=1)
    world.save(20)
    _stopped(world)
    job = _start(world)
    world.agents["n2"].rank_dies(1, 139)
    failover = world.recover()
    assert failover.state == "completed"
    assert failover.restore_step == 20
    assert world.job().epoch == job.epoch + 1
