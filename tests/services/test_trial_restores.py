"""Trial restores: asked for or by schedule, on a standby that is only lent, and what the ledger says afterwards."""

from datetime import timedelta
from typing import Any

import pytest

from reliability.domain.faults import FaultClass
from reliability.domain.orders import Order
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import DomainError, InvalidInput
from reliability.models import (
    Failover,
    Finding,
    Incident,
    Job,
    PlannedRemoval,
    SnapshotCopy,
    TrialRestore,
    TrialSchedule,
)
from reliability.selectors import core
from reliability.services import clock, incidents, restores, trial_restores
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
State = TrialRestore.State


@pytest.fixture
def job(world: World) -> Job:
    """Return a job with two steps stored."""
    job = world.running_job()
    for step in (10, 20):
        world.save(step)
    return job


def tried_by(*, bad: tuple[int, ...] = (), unread: tuple[int, ...] = (), code: str = "digest_mismatch") -> Any:
    """Return how an agent answers: what it read, and which ranks it could not."""

    def answer(order: Order) -> dict[str, Any]:
        copies = [(rank["rank"], source) for rank in order.payload["ranks"] for source in rank["sources"]]

        def told(ranks: tuple[int, ...], **more: Any) -> list[dict[str, Any]]:
            return [
                {"rank": rank, "tier": source["tier"], "path": source["path"], **more}
                for rank, source in copies
                if rank in ranks
            ]

        good = tuple({rank for rank, _ in copies} - {*bad, *unread})
        result = {
            "read": told(good, size_bytes=1000),
            "bad": told(bad, code=code, message="Chunk 0 does not have the digest of its record."),
            "unread": told(unread, code="tier_unreachable", message="The store is away."),
            "seconds": 1.5,
            "size_bytes": 1000 * len(good),
        }
        if bad or unread:
            error = {"code": "trial_failed", "message": "Rank 1 does not load.", "hint": ""}
            return {"status": "failed", "result": result, "error": error}
        return {"status": "done", "result": result}

    return answer


def ended(world: World, trial: TrialRestore, **answer: Any) -> TrialRestore:
    for agent in world.agents.values():
        agent.replies["trial_restore"] = tried_by(**answer)
    world.until(lambda: TrialRestore.objects.get(pk=trial.pk).state != State.RUNNING)
    return TrialRestore.objects.get(pk=trial.pk)


def test_the_newest_stored_step_is_tried_on_the_standby_a_recovery_would_take_last(world: World, job: Job) -> None:
    world.save(30, tiers=("memory", "ssd"))
    trial = trial_restores.begin(job, by="ann")
    assert (trial.snapshot.step, trial.node.name) == (20, "s2")
    trial = ended(world, trial)
    assert (trial.state, trial.reason) == (State.PASSED, "All 3 copies of 3 ranks were loaded and agree.")
    [order] = [each for each in world.agents["s2"].heard_orders if each.kind == "trial_restore"]
    assert (order.job, order.payload["job"], order.payload["step"]) == ("", "lm", 20)
    assert {source["tier"] for rank in order.payload["ranks"] for source in rank["sources"]} == {"storage"}
    copies = SnapshotCopy.objects.filter(snapshot__step=20, tier=Tier.STORAGE)
    assert all(copy.trial_restored_at and copy.verified_at for copy in copies)
    assert trial.snapshot.tiers.get(tier=Tier.STORAGE).state == "trial_restored"
    assert not Incident.objects.exists()


def test_a_copy_that_does_not_load_is_not_restored_from_and_becomes_an_incident_of_class_storage(
    world: World, job: Job
) -> None:
    trial = ended(world, trial_restores.begin(job, by="ann"), bad=(1,))
    assert trial.state == State.FAILED
    assert trial.reason.startswith("rank 1 on storage, /storage/e1-s20-r1: Chunk 0")
    copy = SnapshotCopy.objects.get(snapshot__step=20, tier=Tier.STORAGE, rank=1)
    assert copy.state == CopyState.CORRUPT
    assert "Chunk 0" in copy.problem
    incident = Incident.objects.get()
    assert (incident.job, incident.fault_class, incident.action) == (job, FaultClass.STORAGE, "observe")
    assert "/storage/e1-s20-r1" in incident.reasons[0]
    assert Finding.objects.get(code="trial-restore-failed").incident == incident
    placement = {0: "s1", 1: "s1", 2: "s1"}
    found = restores.point(job, placement=placement, lost=["n1", "n2", "n3"], before=2)
    assert found is not None
    assert found.snapshot == SnapshotId(1, 10)
    assert "storage copy is corrupt" in found.skipped[0]
    world.tick(1.0)
    assert world.job().state == Job.State.RUNNING
    assert not Failover.objects.exists()


def test_what_a_trial_found_is_an_incident_apart_from_those_of_the_training(world: World, job: Job) -> None:
    incidents.note(world.agents["n1"].node, "store-behind", job=job, epoch=job.epoch)
    world.until(lambda: Incident.objects.filter(job=job).exists())
    before = Incident.objects.filter(job=job).count()
    ended(world, trial_restores.begin(job, by="ann"), bad=(1,))
    apart = Incident.objects.get(code="trial-restore-failed")
    assert Incident.objects.filter(job=job).count() == before + 1
    assert (apart.job, apart.fault_class, apart.action) == (job, FaultClass.STORAGE, "observe")
    assert [finding.code for finding in apart.findings.all()] == ["trial-restore-failed"]
    world.agents["n2"].rank_dies(*world.agents["n2"].ranks, 1)
    world.until(lambda: core.open_failover(job) is not None, tick_s=0.1)
    assert Failover.objects.get().incident != apart
    apart.refresh_from_db()
    assert (apart.code, apart.action, apart.findings.count()) == ("trial-restore-failed", "observe", 1)


def test_what_is_about_to_be_removed_is_not_tried_nor_bad_when_it_is_missing(world: World, job: Job) -> None:
    old = job.snapshots.get(step=10)
    copies = SnapshotCopy.objects.filter(snapshot=old, tier=Tier.STORAGE)
    plan = {"job": job, "snapshot": old, "tier": Tier.STORAGE, "why": "not_kept", "planned_at": clock.now()}
    planned = PlannedRemoval.objects.create(copy=copies[0], node=world.agents["n1"].node, **plan)
    with pytest.raises(DomainError, match="Step 10 is about to be removed from storage"):
        trial_restores.begin(job, by="ann", snapshot=old)
    assert not TrialRestore.objects.exists()
    planned.delete()
    trial = trial_restores.begin(job, by="ann", snapshot=old)
    copies.filter(rank=1).update(state=CopyState.DELETED)  # it was on its way when the trial began
    trial = ended(world, trial, bad=(1,), code="copy_missing")
    assert trial.state == State.UNDECIDED
    assert "rank 1 on storage" in trial.reason
    assert not copies.exclude(state__in=(CopyState.COMMITTED, CopyState.DELETED)).exists()
    assert not Incident.objects.exists()


def test_a_store_that_is_away_decides_nothing_and_spoils_nothing(world: World, job: Job) -> None:
    trial = ended(world, trial_restores.begin(job, by="ann"), unread=(0, 1, 2))
    assert trial.state == State.UNDECIDED
    assert "The store is away." in trial.reason
    assert not SnapshotCopy.objects.exclude(state=CopyState.COMMITTED).exists()
    assert not Incident.objects.exists()


@pytest.mark.parametrize(
    "told",
    [
        {"read": [{"rank": 0, "tier": "storage", "path": "/another/file"}], "bad": []},
        {"read": "all", "bad": [{"rank": "x", "tier": "storage", "path": 7}]},
        {"read": [], "bad": [{"rank": 0, "tier": "storage", "path": "/storage/e1-s10-r0", "code": "corrupt"}]},
        {"read": [{"rank": 0, "tier": {}, "path": []}, 7], "bad": {"rank": 0}, "unread": None},
        {"read": [{"rank": [0], "tier": "storage", "path": "/storage/e1-s20-r0"}], "seconds": {}, "size_bytes": "much"},
        {"bad": [{"rank": 0, "tier": "storage", "path": "/storage/e1-s20-r0", "code": {}, "message": ["x"]}]},
        {},
    ],
)
def test_what_a_node_tells_of_copies_that_it_was_not_asked_for_counts_for_nothing(
    world: World, job: Job, told: dict[str, Any]
) -> None:
    world.agents["s2"].replies["trial_restore"] = lambda _order: {"status": "done", "result": told}
    trial = trial_restores.begin(job, by="ann")
    world.until(lambda: TrialRestore.objects.get(pk=trial.pk).state != State.RUNNING)
    assert TrialRestore.objects.get(pk=trial.pk).state == State.UNDECIDED
    assert not SnapshotCopy.objects.exclude(state=CopyState.COMMITTED).exists()
    assert not SnapshotCopy.objects.exclude(trial_restored_at=None).exists()


def test_a_node_that_never_answers_leaves_the_trial_undecided_when_its_time_is_over(
    world: World, job: Job, settings: Any
) -> None:
    settings.TRIAL_LIMIT_S = 1
    world.agents["s2"].replies["trial_restore"] = lambda _order: None
    trial = trial_restores.begin(job, by="ann")
    world.tick(59)
    assert TrialRestore.objects.get(pk=trial.pk).state == State.RUNNING
    world.tick(5)
    trial.refresh_from_db()
    assert trial.state == State.UNDECIDED
    assert "did not answer" in trial.reason


def test_a_recovery_takes_the_standby_all_the_same_and_the_trial_is_told_as_ended_early(world: World, job: Job) -> None:
    ended_early = {"code": "trial_ended", "message": "It made way: the order prepare came.", "hint": ""}
    for name in ("s1", "s2"):
        world.agents[name].replies["trial_restore"] = lambda _order: None
    trial = trial_restores.begin(job, by="ann", node=world.agents["s1"].node)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    world.until(lambda: Failover.objects.exists())
    with pytest.raises(DomainError, match="recovery is open"):
        trial_restores.begin(job, by="ann")
    for agent in world.agents.values():
        agent.stepping = True
    failover = world.recover()
    assert [move["to"] for move in failover.moves] == ["s1"]
    order = trial_restores.OrderRecord.objects.get(key=f"trial:{trial.pk}")
    agent = world.agents["s1"]
    agent.report("order_result", {"order": str(order.pk), "status": "failed", "result": {}, "error": ended_early})
    world.tick()
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == (State.STOPPED, "It made way: the order prepare came.")


@pytest.mark.parametrize("what", ["nothing stored", "no standby", "one runs", "of another job"])
def test_what_cannot_be_tried_is_refused_with_the_reason(world: World, what: str) -> None:
    job = world.running_job()
    if what == "nothing stored":
        with pytest.raises(DomainError, match="whole on storage"):
            trial_restores.begin(job, by="ann")
        return
    world.save(10)
    if what == "no standby":
        for name in ("s1", "s2"):
            world.agents[name].power_off()
        world.until(lambda: not core.free_nodes().filter(health="healthy").exists())
        with pytest.raises(DomainError, match="No standby is free"):
            trial_restores.begin(job, by="ann")
    elif what == "one runs":
        trial_restores.begin(job, by="ann")
        with pytest.raises(DomainError, match="is running"):
            trial_restores.begin(job, by="ann")
        assert TrialRestore.objects.count() == 1
    else:
        other = world.submit("other", nodes=1)
        with pytest.raises(InvalidInput, match="none of job other"):
            trial_restores.begin(other, by="ann", snapshot=job.snapshots.get())


def begin_due(world: World) -> int:
    trial_restores.begin_due(clock.now())
    return TrialRestore.objects.count()


def test_by_schedule_a_snapshot_is_tried_every_so_many_hours(world: World, job: Job) -> None:
    trial_restores.set_schedule(job, every_hours=2, every_snapshots=None, by="ann")
    assert begin_due(world) == 1
    assert begin_due(world) == 1, "one at a time"
    first = ended(world, TrialRestore.objects.get())
    assert first.asked_by == "schedule"
    assert begin_due(world) == 1
    TrialRestore.objects.update(started_at=clock.now() - timedelta(hours=2))
    assert begin_due(world) == 2


def test_by_schedule_each_so_manyth_snapshot_is_tried(world: World, job: Job) -> None:
    trial_restores.set_schedule(job, every_hours=None, every_snapshots=2, by="ann")
    assert begin_due(world) == 1
    ended(world, TrialRestore.objects.get())
    world.save(30)
    assert begin_due(world) == 1
    world.save(40)
    assert begin_due(world) == 2
    assert TrialRestore.objects.first().snapshot.step == 40  # type: ignore[union-attr]


def test_by_schedule_a_trial_that_decided_nothing_is_made_again_after_a_while(world: World, job: Job) -> None:
    trial_restores.set_schedule(job, every_hours=24, every_snapshots=None, by="ann")
    begin_due(world)
    ended(world, TrialRestore.objects.get(), unread=(0,))
    assert begin_due(world) == 1
    TrialRestore.objects.update(ended_at=clock.now() - timedelta(seconds=301))
    assert begin_due(world) == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"every_hours": 0.01, "every_snapshots": None}, "every_hours"),
        ({"every_hours": float("nan"), "every_snapshots": None}, "every_hours"),
        ({"every_hours": None, "every_snapshots": 0}, "every_snapshots"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(job: Job, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        trial_restores.set_schedule(job, **given, by="ann")
    assert error.value.field == field
    assert trial_restores.set_schedule(job, every_hours=None, every_snapshots=None, by="ann") is None
    assert not TrialSchedule.objects.exists()
