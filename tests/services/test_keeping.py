"""What is long over goes, what decisions or people need stays, and looking for a restore point stays cheap."""

from datetime import timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from reliability.models import FailoverEvent, Job, Node, OrderRecord, Report, Snapshot, SnapshotCopy, Validation
from reliability.selectors import core, ledger
from reliability.services import clock, keeping, snapshot_tally
from tests.services.world import World

pytestmark = pytest.mark.django_db


@pytest.mark.slow
def test_reports_that_were_read_and_old_checks_go_and_recoveries_stay(world: World) -> None:
    world.running_job()
    world.save(20)
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    events = FailoverEvent.objects.count()
    of_jobs = OrderRecord.objects.exclude(job=None).count()
    node = Node.objects.get(name="s1")
    for _ in range(25):
        now = clock.now()
        Validation.objects.create(node=node, check_kind="sdc", verdict="pass", started_at=now, ended_at=now)
    unread = Report.objects.order_by("pk")[0]
    Report.objects.filter(pk=unread.pk).update(state="new")
    assert keeping.forget_old(clock.now() + timedelta(days=6)) >= 5
    assert Report.objects.count() > 1
    keeping.forget_old(clock.now() + timedelta(days=8))
    assert list(Report.objects.all()) == [unread]
    assert Validation.objects.filter(node=node).count() == 20
    assert FailoverEvent.objects.count() == events
    assert OrderRecord.objects.exclude(job=None).count() == of_jobs  # the job is not over: its keys count
    Job.objects.update(state="stopped")
    keeping.forget_old(clock.now() + timedelta(days=8))
    assert set(OrderRecord.objects.exclude(job=None).values_list("failover", flat=True)) == {world.failover().pk}
    assert keeping.forget_old(clock.now() + timedelta(days=8)) == 0


@pytest.mark.slow
def test_only_the_newest_snapshots_of_the_line_are_looked_at(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    job = world.running_job()
    now = clock.now()
    for step in range(10, 10 * (core.NEWEST_COMPLETE + 11), 10):
        taken = Snapshot.objects.create(job=job, epoch=1, step=step, created_at=now)
        SnapshotCopy.objects.bulk_create(
            SnapshotCopy(
                snapshot=taken, rank=rank, tier="storage", path=f"/{step}-{rank}", size_bytes=1, digest="blake2b:00",
                committed_at=now,
            )
            for rank in range(3)
        )  # fmt: skip
    abandoned = Snapshot.objects.create(job=job, epoch=9, step=10**6, created_at=now)
    snapshot_tally.recount_all()
    with django_assert_max_num_queries(6):
        found = ledger.copies_of(job)
    assert {copy.rank for copy in found} == {0, 1, 2}
    assert min(copy.snapshot.step for copy in found) == 10 * 11
    assert abandoned.step not in {copy.snapshot.step for copy in found}
    assert core.complete_snapshots(job)[0].step == 10 * (core.NEWEST_COMPLETE + 10)
