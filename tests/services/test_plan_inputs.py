"""What the planner knows of a job: measured where it was measured, with the sentence that says from what."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from reliability.models import Epoch, Failover, Incident, Job, Node, Plan, Rank, Snapshot, SnapshotCopy
from reliability.selectors import plan_inputs, plan_samples, running
from reliability.selectors.plan_inputs import NAMES, Known
from reliability.services import clock, drills, jobs
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def measured(job: Job) -> dict[str, Known]:
    return plan_inputs.measured(job, now=clock.now())


def saved(
    job: Job, step: int, stalls: tuple[float, ...], *, drain_s: float | None = None, tier: str = "memory"
) -> None:
    snapshot, _ = Snapshot.objects.get_or_create(job=job, epoch=job.epoch, step=step, created_at=clock.now())
    for rank, stall_s in enumerate(stalls):
        SnapshotCopy.objects.create(
            snapshot=snapshot,
            rank=rank,
            tier=tier,
            node=None,
            path="/x",
            size_bytes=1,
            digest="x",
            stall_s=stall_s,
            drain_s=drain_s,
            committed_at=clock.now(),
        )


def lose_n2(world: World) -> None:
    for _ in range(10):
        world.tick(reconcile_too=False)
    for name in ("n1", "n3"):
        world.agents[name].stepping = False
    world.agents["n2"].power_off()


def recovered(world: World) -> Failover:
    for name in ("n1", "n3"):
        world.agents[name].stepping = True
    return world.recover(seconds=60.0)


def test_every_value_has_a_default_that_says_so() -> None:
    found = plan_inputs.defaults(None)
    assert set(found) == set(NAMES)
    assert {value.kind for value in found.values()} == {"default"}
    assert found["save_stall"].told == "default: no job chosen"
    assert found["step_time"].value is None


def test_a_job_that_never_ran_is_planned_with_what_is_typical_of_its_nodes(world: World) -> None:
    found = plan_inputs.known(world.submit(), now=clock.now())
    mtbf = found["mtbf"]
    assert (mtbf.kind, mtbf.faults, mtbf.exposure_s, mtbf.prior) == ("default", 0, 0.0, "fleet")
    assert mtbf.value == pytest.approx(DAY_S / (3 * 4e-3))
    assert mtbf.told == (
        "default: typical of 3 nodes (4 faults in 1000 node-days); with 90 % probability one in 28 d to 4 years"
    )
    assert found["save_stall"].told == "default: none measured yet"
    assert found["nodes"] == Known(value=3.0, kind="measured", told="job lm runs on 3 nodes")


def test_a_save_stalls_the_job_as_long_as_its_slowest_rank(world: World) -> None:
    job = world.running_job()
    for step, stalls in enumerate(((0.1, 0.2, 5.7), (0.1, 6.0, 0.2), (6.4, 0.1, 0.1)), start=1):
        saved(job, step, stalls)
    world.pass_time(87 * HOUR_S)
    found = measured(job)["save_stall"]
    assert (found.value, found.low, found.high, found.samples) == (6.0, 5.7, 6.4, 3)
    assert found.told == "measured from lm over the last 87 h: median of 3 saves, 5.7 to 6.4 s"


def test_one_sample_is_called_one(world: World) -> None:
    job = world.running_job()
    saved(job, 1, (0.5,))
    world.pass_time(4 * HOUR_S)
    assert measured(job)["save_stall"].told == "measured from lm over the last 4 h: one save"


def test_a_drain_counts_when_every_rank_has_its_copy(world: World) -> None:
    job = world.running_job()
    saved(job, 1, (0.0, 0.0, 0.0), drain_s=40.0, tier="storage")
    saved(job, 2, (0.0, 0.0), drain_s=90.0, tier="storage")
    saved(job, 1, (0.0, 0.0, 0.0), drain_s=2.0, tier="ssd")
    found = measured(job)
    assert (found["drain"].value, found["drain_ssd"].value) == (40.0, 2.0)
    assert found["drain"].told.endswith(": one copy to storage")


def test_what_is_older_than_the_window_is_forgotten(world: World, settings: object) -> None:
    job = world.running_job()
    saved(job, 1, (0.5, 0.5, 0.5))
    settings.PLAN_WINDOW_S = HOUR_S  # type: ignore[attr-defined]
    world.pass_time(2 * HOUR_S)
    found = measured(job)
    assert "save_stall" not in found
    assert found["mtbf"].exposure_s == HOUR_S


def test_the_time_of_a_step_is_the_median_of_the_ranks(world: World) -> None:
    job = world.running_job()
    for rank, step_s in enumerate((0.1, 0.3, 7.0)):
        Rank.objects.filter(rank=rank).update(step_s=step_s)
    found = measured(job)["step_time"]
    assert found.value == 0.3
    assert found.told == "measured from lm: median of 3 ranks, recent steps without their saves"
    Rank.objects.update(step_s=None)
    assert "step_time" not in measured(job)


def test_faults_are_counted_over_the_time_in_which_the_job_trained(world: World) -> None:
    job = world.running_job()
    began = Epoch.objects.get(job=job).running_at
    assert began is not None
    world.save(20)
    world.pass_time(10 * HOUR_S)
    for agent in world.agents.values():
        agent.beat()
    world.tick()
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    first = Failover.objects.get()
    world.pass_time(5 * HOUR_S)
    found = measured(world.job())["mtbf"]
    trained_s = (first.fault_at - began).total_seconds() + 5 * HOUR_S
    assert found.exposure_s == pytest.approx(trained_s)
    assert found.exposure_s < (clock.now() - began).total_seconds()
    assert (found.faults, found.prior, found.kind) == (1, "jeffreys", "measured")
    assert found.value == pytest.approx(trained_s / 1.5)
    assert "1 fault in 15 h of training, drills left out; with 90 % probability one in" in found.told


def test_no_fault_is_a_measurement_to_which_the_fleet_adds_what_is_typical(world: World) -> None:
    job = world.running_job()
    world.pass_time(50 * HOUR_S)
    found = measured(job)["mtbf"]
    assert (found.kind, found.faults, found.samples, found.prior) == ("measured", 0, 0, "fleet")
    assert found.value == pytest.approx(DAY_S / (3 * 4e-3) + 50 * HOUR_S)
    assert "no fault in 50 h of training; with what is typical of 3 nodes (4 faults in 1000 node-days);" in found.told
    assert "node_share" not in measured(job)


def test_a_value_is_assumed_until_something_of_the_kind_happened_to_the_job(world: World) -> None:
    job = world.running_job()
    assert all(plan_inputs.is_assumed(value) for value in plan_inputs.defaults(job).values())
    world.pass_time(50 * HOUR_S)
    saved(job, 1, (0.5, 0.5, 0.5))
    found = plan_inputs.known(job, now=clock.now())
    assert found["mtbf"].kind == "measured"
    assert plan_inputs.is_assumed(found["mtbf"])  # trained for long, but no fault was counted
    assert not plan_inputs.is_assumed(found["save_stall"])
    began = Epoch.objects.get(job=job).running_at
    assert began is not None
    incident = Incident.objects.create(job=job, epoch=job.epoch, action="restart_in_place", opened_at=began)
    Failover.objects.create(
        incident=incident,
        job=job,
        kind="restart_in_place",
        state="completed",
        from_epoch=job.epoch,
        to_epoch=job.epoch + 1,
        **dict.fromkeys(("state_since", "fault_at", "created_at", "ended_at"), clock.now()),
    )
    assert not plan_inputs.is_assumed(measured(job)["mtbf"])


def test_a_stopped_job_is_not_exposed_while_it_stands_still(world: World) -> None:
    job = world.running_job()
    world.save(20)
    world.pass_time(HOUR_S)
    jobs.stop(job, by="ann")
    world.tick()
    world.pass_time(30 * HOUR_S)
    for agent in world.agents.values():
        agent.join()
    world.tick()
    jobs.start(world.job(), by="ann")
    world.until(lambda: world.job().state == Job.State.RUNNING)
    world.pass_time(2 * HOUR_S)
    since = clock.now() - timedelta(days=30)
    stretches = running.intervals(world.job(), since=since, until=clock.now())
    assert [round((end - start).total_seconds() / HOUR_S) for start, end in stretches] == [1, 2]


def test_a_job_that_waits_for_a_decision_stands_still_since_the_fault(world: World) -> None:
    job = world.running_job(approval="manual")
    world.save(20)
    lose_n2(world)
    world.until(Failover.objects.exists)
    fault_at = Failover.objects.get().fault_at
    world.pass_time(600.0)
    job = world.job()
    stretches = running.intervals(job, since=clock.now() - timedelta(days=1), until=clock.now())
    assert stretches[-1][1] == fault_at


def test_a_drill_is_no_fault_but_its_recovery_is_measured(world: World) -> None:
    job = world.running_job()
    world.save(20)
    drills.start(job, node=Node.objects.get(name="n2"), what="kill_rank", by="ann")
    world.tick()
    world.agents["n2"].rank_dies(1, 137)
    world.recover()
    found = measured(world.job())
    assert found["mtbf"].faults == 0
    assert found["recovery"].samples == 1
    assert found["recovery"].value == pytest.approx(0.6, abs=0.6)
    assert found["recovery"].told.endswith("one recovery, from the restore to the first step")
    assert "people" not in found["downtime"].told


def test_what_turned_out_to_stop_nothing_is_no_fault(world: World) -> None:
    job = world.running_job(approval="manual")
    world.save(20)
    silent = world.agents["n2"]
    silent.beating = False
    world.agents["n1"].stepping = world.agents["n3"].stepping = silent.stepping = False
    world.until(Failover.objects.exists)
    silent.beating = True
    world.agents["n1"].stepping = world.agents["n3"].stepping = silent.stepping = True
    world.until(lambda: world.failover().ended_at is not None)
    assert world.failover().state == "cancelled"
    assert Incident.objects.get().action == "failover"
    assert plan_samples.faults(job, since=clock.now() - timedelta(days=1)).all == 0


def test_recovery_and_downtime_are_all_of_the_time_from_the_fault_to_the_first_step(world: World) -> None:
    world.running_job()
    world.save(20)
    lose_n2(world)
    world.until(Failover.objects.exists)
    done = recovered(world)
    assert done.ended_at is not None
    found = measured(world.job())
    assert found["recovery"].value is not None
    assert found["downtime"].value is not None
    took = (done.ended_at - done.fault_at).total_seconds()
    assert found["recovery"].value + found["downtime"].value == pytest.approx(took)
    assert found["downtime"].value > 5.0  # a silent node is found out after the silence limit
    assert found["node_share"].value == 1.0
    assert found["node_share"].told.endswith("1 of 1 fault cost a node")


def test_the_wait_for_a_person_counts_where_people_are_asked(world: World) -> None:
    from reliability.services import failovers
    from tests.services.world import approver

    world.running_job(approval="manual")
    world.save(20)
    lose_n2(world)
    world.until(Failover.objects.exists)
    world.until(lambda: bool(world.failover().proposal.get("moves")))
    before = measured(world.job()).get("downtime")
    assert before is None
    for _ in range(10):
        world.tick(2.0)
    failovers.approve(world.failover(), by=approver(), digest=world.failover().digest)
    recovered(world)
    for approval, counts in (("manual", True), ("automatic", False)):
        Job.objects.update(approval=approval)
        found = measured(world.job())["downtime"]
        assert found.value is not None
        assert (found.value > 25.0) is counts
        assert ("people took to approve" in found.told) is counts


def test_standbys_are_the_free_nodes_that_could_take_over_now(world: World) -> None:
    job = world.running_job()
    assert measured(job)["standbys"].value == 2.0
    Node.objects.filter(name="s1").update(health="unreachable")
    found = measured(job)["standbys"]
    assert (found.value, found.told) == (1.0, "measured now: 1 free node could take over from one of lm")


def test_a_repair_lasts_until_the_lost_node_may_be_used_again(world: World) -> None:
    world.running_job()
    world.save(20)
    lose_n2(world)
    world.until(Failover.objects.exists)
    recovered(world)
    assert "repair" not in measured(world.job())
    hold = Node.objects.get(name="n2").holds.get()
    world.pass_time(6 * HOUR_S)
    type(hold).objects.update(released_at=clock.now())
    found = measured(world.job())["repair"]
    assert found.value == pytest.approx(6 * HOUR_S, rel=0.01)
    assert found.told.endswith("mean of 1 lost node that could be used again")


def test_the_target_is_that_of_the_newest_plan(world: World) -> None:
    job = world.submit()
    values = {"every_steps": 5, "period_s": 1.0, "step_s": 0.2, "planned_ettr": 0.95, "from_step": 9}
    Plan.objects.create(
        job=job, version=1, inputs={}, outputs={}, target=0.9, applied_by="ann", applied_at=clock.now(), **values
    )
    found = plan_inputs.defaults(job)["target"]
    assert (found.value, found.told) == (0.9, "default: the target of plan 1, applied by ann")


def test_however_long_a_job_ran_the_database_is_asked_the_same_few_times(world: World) -> None:
    job = world.running_job()
    world.save(20)
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    with CaptureQueriesContext(
        connection,
    ) as few:
        measured(world.job())
    now = clock.now()
    Snapshot.objects.bulk_create(
        Snapshot(job=job, epoch=job.epoch, step=step, created_at=now) for step in range(1000, 4000)
    )
    new = Snapshot.objects.filter(step__gte=1000)
    place = {"tier": "memory", "path": "/x", "size_bytes": 1, "digest": "x", "committed_at": now, "stall_s": 0.5}
    SnapshotCopy.objects.bulk_create(SnapshotCopy(snapshot=each, rank=0, **place) for each in new)
    with CaptureQueriesContext(connection) as many:
        found = measured(world.job())
    assert len(many) == len(few) <= 13
    assert found["save_stall"].samples == plan_samples.SAVES
