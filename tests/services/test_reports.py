"""Reports: kept once, refused when stale, read in order, and never in each other's way."""

import pytest

from reliability.domain.failover import State
from reliability.domain.reports import parse_batch
from reliability.domain.snapshots import SnapshotId
from reliability.models import Failover, Finding, Incident, Job, Node, OrderRecord, Rank, Report, Snapshot, SnapshotCopy
from reliability.selectors import core
from reliability.services import clock, incidents, jobs, quiet_incidents, reading, reports, snapshots
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_the_same_report_is_taken_once(world: World) -> None:
    world.running_job()
    agent = world.agents["n1"]
    first = agent.report("finding", {"code": "xid-13", "evidence": "x"}, seq=900)
    second = agent.report("finding", {"code": "xid-13", "evidence": "x"}, seq=900)
    assert [first[0]["status"], second[0]["status"]] == ["accepted", "duplicate"]
    assert Report.objects.filter(node__name="n1", seq=900).count() == 1


def test_a_report_of_an_older_epoch_is_refused_and_kept(world: World) -> None:
    """A node that slept through its replacement wakes up and says that it finished a snapshot."""
    world.running_job()
    world.save(20)
    zombie = world.agents["n3"]
    ranks = dict(zombie.ranks)
    for agent in world.agents.values():
        agent.stepping = False
    zombie.alive = False
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    world.recover()
    assert world.job().epoch == 2
    zombie.alive, zombie.ranks, zombie.epoch, zombie.job = True, ranks, 1, "lm"
    answer = zombie.save_one(2, 40, "storage")
    assert (answer[0]["status"], answer[0]["code"]) == ("refused", "stale_epoch")
    assert "2 is in charge" in answer[0]["message"]
    assert Report.objects.get(state=Report.State.REFUSED).kind == "snapshot_copy"
    assert not Snapshot.objects.filter(step=40).exists()


def test_a_node_that_was_replaced_cannot_commit_under_the_new_epoch_either(world: World) -> None:
    world.running_job()
    world.save(20)
    stranger = world.agents["s2"]
    stranger.job, stranger.epoch = "lm", 1
    stranger.save_one(2, 40, "storage")
    reports.process_new()
    refused = Report.objects.get(node__name="s2", kind="snapshot_copy")
    assert refused.state == Report.State.REFUSED
    assert "does not run on s2" in refused.refusal


def test_a_poison_report_is_refused_with_its_reason_and_the_next_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.running_job()

    def broken(row: Report) -> list[reading.FollowUp]:
        Rank.objects.update(step=12345)
        raise KeyError("boom")

    monkeypatch.setitem(reading.READERS, "container", broken)  # type: ignore[arg-type]
    world.agents["n1"].report("container", {"event": "die"})
    world.agents["n1"].save(20)
    reports.process_new()
    poison = Report.objects.get(kind="container")
    assert (poison.state, poison.refusal) == (Report.State.REFUSED, "KeyError: 'boom'")
    assert not Rank.objects.filter(step=12345).exists()
    assert SnapshotCopy.objects.filter(snapshot__step=20).count() == 3
    assert "could not be read" in caplog.text


def test_a_flood_of_one_finding_is_counted_and_hides_no_other(world: World) -> None:
    world.running_job()
    agent = world.agents["n2"]
    for _ in range(30):
        agent.report("finding", {"code": "xid-13", "evidence": "Xid 13: GPC 2", "count": 1000})
    agent.report("finding", {"code": "xid-79", "evidence": "Xid 79: fell off the bus"})
    reports.process_new()
    assert Finding.objects.get(code="xid-13").count == 30_000
    assert Finding.objects.get(code="xid-79").count == 1


def test_the_same_line_that_goes_on_for_an_hour_is_one_finding_and_keeps_its_incident_open(world: World) -> None:
    world.running_job()
    for _ in range(60):
        body = {"code": "disk-error", "evidence": "I/O error, dev nvme1n1, sector 7", "fields": {"device": "nvme1n1"}}
        world.agents["n1"].report("finding", {**body, "count": 30})
        reports.process_new()
        world.pass_time(60)
        quiet_incidents.close_quiet(clock.now())
    found = Finding.objects.get(code="disk-error")
    assert (found.count, Incident.objects.get().closed_at) == (1800, None)
    assert (found.last_at - found.found_at).total_seconds() > 3500


def test_a_line_that_begins_as_another_one_is_another_one(world: World) -> None:
    for evidence in ("write failed", "write failed, giving up", "write failed"):
        world.agents["s1"].report("finding", {"code": "odd-thing", "evidence": evidence})
        world.tick()
    assert sorted(Finding.objects.values_list("evidence", "count")) == [
        ("write failed", 2),
        ("write failed, giving up", 1),
    ]


def test_copies_are_read_beside_a_flood_of_findings(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.running_job()
    monkeypatch.setattr(reports, "_ask_for_reading", lambda: None)
    monkeypatch.setattr(reports, "CHUNK", 10)
    for number in range(100):
        world.agents["s1"].report("finding", {"code": f"odd-{number}", "evidence": f"line {number}"})
    world.agents["n1"].save_one(0, 10, "memory")
    reports._read_these(reports._next())
    assert SnapshotCopy.objects.filter(snapshot__step=10).exists()
    assert Report.objects.filter(state=Report.State.NEW).count() > 50


def test_what_is_told_of_a_job_that_is_over_and_had_no_incident_is_seen_and_settled(world: World) -> None:
    job = world.running_job()
    for rank, agent in enumerate(world.agents[name] for name in ("n1", "n2", "n3")):
        agent.rank_dies(rank, 0)
    world.until(lambda: world.job().state == Job.State.COMPLETED)
    incidents.note(world.agents["n1"].node, "snapshot-problem", job=job, epoch=job.epoch, evidence="late")
    assert incidents.undecided() == [job.pk]
    world.tick()
    assert incidents.undecided() == []
    late = Incident.objects.get(job=job)
    assert (late.action, late.closed_at is not None, late.findings.count()) == ("observe", True, 1)


@pytest.mark.parametrize(
    ("report", "fault_class"),
    [
        (("container", {"event": "oom", "oom_killed": True, "exit_code": 137}), "application"),
        (("rank_exit", {"rank": 1, "exit_code": 137}), "unknown"),
    ],
)
def test_exit_137_means_what_its_evidence_says(
    world: World, report: tuple[str, dict[str, object]], fault_class: str
) -> None:
    world.running_job()
    world.agents["n2"].report(*report)
    reports.process_new()
    assert Incident.objects.get().fault_class == fault_class


def test_an_end_that_we_ordered_is_no_incident(world: World) -> None:
    world.running_job()
    world.agents["n2"].report("container", {"event": "die", "exit_code": 137, "ordered": True})
    reports.process_new()
    assert not Finding.objects.exists()
    assert not Incident.objects.exists()


def test_an_end_reported_under_an_epoch_that_was_not_started_is_the_old_attempts(world: World) -> None:
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.replies["restore"] = lambda order: None
    world.agents["n1"].rank_dies(0, 137)
    world.until(lambda: Failover.objects.exists() and world.failover().state == State.RESTORING)
    world.agents["n2"].epoch = 2
    world.agents["n2"].rank_dies(1, 137)
    reports.process_new()
    assert Finding.objects.count() == 1
    assert not Rank.objects.filter(state=Rank.State.FAILED).exists()


def test_two_fatal_findings_are_one_incident_and_nothing_is_left_open_afterwards(world: World) -> None:
    world.running_job()
    world.save(20)
    agent = world.agents["n3"]
    agent.report("finding", {"code": "xid-79", "rank": 2, "evidence": "a"})
    agent.report("finding", {"code": "xid-48", "rank": 2, "evidence": "b"})
    world.recover()
    starts = list(world.starts())
    for _ in range(10):
        world.tick(0.5)
    assert Incident.objects.count() == Failover.objects.count() == 1
    assert Incident.objects.get().closed_at is not None
    assert not Finding.objects.filter(incident=None).exists()
    assert world.starts() == starts


def test_only_consequences_wait_for_their_cause_while_a_node_was_not_heard_since(world: World) -> None:
    """Peers of a node that lost power complain at once; a restart in place would go to the dead node."""
    world.running_job()
    world.save(20)
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n3"].power_off()
    for name, rank in (("n1", 0), ("n2", 1)):
        world.agents[name].rank_dies(rank, 1, tail="Connection closed by peer [10.0.0.3]:5000")
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    failover = world.failover()
    assert failover.kind == "failover"
    assert failover.incident.code == "node-lost"
    assert world.recover().state == State.COMPLETED


def test_the_floor_of_the_disks_is_the_newest_step_of_the_line_that_no_rank_lacks(world: World) -> None:
    world.running_job()
    assert snapshots.local_floors([world.job()]) == {}
    world.save(8, tiers=("memory",))
    reports.process_new()
    assert snapshots.local_floors([world.job()]) == {}, "memory does not outlive its host"
    world.save(16, tiers=("memory", "ssd"))
    for rank, name in ((0, "n1"), (1, "n2")):
        world.agents[name].save_one(rank, 18, "ssd")
    reports.process_new()
    assert snapshots.local_floors([world.job()]) == {"lm": 16}, "a rank far behind keeps the others' older copies"
    world.agents["n3"].save_one(2, 18, "storage")
    reports.process_new()
    assert snapshots.local_floors([world.job()]) == {"lm": 18}
    snapshots.distrust(world.job(), SnapshotId(1, 18), reason="it failed twice")
    assert snapshots.local_floors([world.job()]) == {"lm": 16}


def test_a_step_counts_only_when_every_rank_has_committed_it(world: World) -> None:
    world.running_job()
    world.save(16)
    for rank, name in ((0, "n1"), (1, "n2")):
        world.agents[name].save_one(rank, 18, "storage")
    reports.process_new()
    job = world.job()
    assert core.newest_complete_step(job) == 16
    assert job.storage_step == 16
    world.agents["n2"].rank_dies(1, 137)
    assert world.recover().restore_step == 16


def test_a_heartbeat_of_an_older_epoch_moves_no_rank(world: World) -> None:
    world.running_job()
    agent = world.agents["n1"]
    agent.epoch, agent.ranks = 0, {0: 999}
    world.tick()
    assert Rank.objects.get(rank=0).step != 999


def test_a_result_of_an_order_that_was_never_given_is_refused(world: World) -> None:
    world.agents["n1"].report("order_result", {"order": "not-even-an-id", "status": "done"}, epoch=0)
    reports.process_new()
    assert "was never given" in Report.objects.get(state=Report.State.REFUSED).refusal


def test_a_late_answer_to_an_expired_order_is_still_taken(world: World) -> None:
    world.agents["n1"].replies["prepare"] = lambda order: None
    job = world.submit()
    world.job()
    from reliability.services import jobs, orders

    jobs.start(job, by="ann")
    jobs.drive(job.pk)
    order = OrderRecord.objects.get(node__name="n1", kind="prepare")
    world.pass_time(1000)
    orders.expire(clock.now())
    world.agents["n1"].report("order_result", {"order": str(order.pk), "status": "done"}, epoch=0)
    reports.process_new()
    order.refresh_from_db()
    assert order.state == OrderRecord.State.DONE


def test_reports_from_before_an_agents_restart_carry_their_own_incarnation(world: World) -> None:
    agent = world.agents["n1"]
    old = agent.incarnation
    agent.join()
    raw = {
        "node": "n1",
        "incarnation": agent.incarnation,
        "reports": [{"seq": 7, "kind": "finding", "incarnation": old, "body": {"code": "xid-13"}}],
    }
    items = parse_batch(raw).items
    for status in ("accepted", "duplicate"):
        result = reports.accept(
            Node.objects.get(name="n1"), incarnation=agent.incarnation, items=items, now=clock.now()
        )
        assert result[0]["status"] == status
    assert Report.objects.get(seq=7).incarnation == old


def test_the_steps_that_a_fault_cost_are_counted_from_the_last_one_made(world: World) -> None:
    """Heartbeats lag behind; what the rank's end tells is the truth."""
    world.running_job()
    world.save(20)
    body = {"rank": 1, "exit_code": 137, "signal": 9, "tail": "", "last_step": 27}
    world.agents["n2"].report("rank_exit", body)
    failover = world.recover()
    assert (failover.fault_step, failover.restore_step) == (27, 20)


def test_the_steps_a_fault_cost_count_only_what_the_failed_attempt_reached(world: World) -> None:
    """The first attempt came far, the second ended before a heartbeat told of a step."""
    world.running_job()
    world.save(20)
    body = {"rank": 1, "exit_code": 137, "signal": 9, "tail": "", "last_step": 90}
    world.agents["n2"].report("rank_exit", body)
    world.recover()
    for rank, last in ((1, 23), (2, 25)):
        world.agents[f"n{rank + 1}"].report("rank_exit", {**body, "rank": rank, "last_step": last})
    reports.process_new()
    world.until(lambda: world.failover().pk > 1 and world.failover().ended_at is not None)
    assert (world.failover().fault_step, world.failover().restore_step) == (25, 20)


def test_the_line_that_decided_is_shown_when_it_was_not_the_last_that_was_printed(world: World) -> None:
    world.running_job()
    tail = "CUDA error: uncorrectable ECC error encountered\nsaving what is left\nbye"
    world.agents["n2"].rank_dies(1, 1, tail=tail)
    world.tick()
    found = Finding.objects.get(code="cuda-ecc")
    assert found.evidence.endswith(
        "Last line: bye The line that says why: CUDA error: uncorrectable ECC error encountered"
    )


def test_what_is_not_known_of_a_trouble_with_snapshots_is_left_out(world: World) -> None:
    world.running_job()
    body = {"tier": "storage", "code": "tier_unreachable", "message": "It is away.", "hint": ""}
    world.agents["n1"].report("snapshot_problem", body)
    world.tick()
    assert Finding.objects.get(code="store-unreachable").evidence == "On storage: tier_unreachable: It is away."


def test_trouble_that_was_only_observed_before_is_no_sign_of_the_fault(world: World) -> None:
    world.running_job()
    world.save(20)
    body = {"tier": "storage", "code": "tier_unreachable", "message": "It is away.", "hint": ""}
    world.agents["n1"].report("snapshot_problem", body)
    world.tick()
    for _ in range(40):
        world.tick(2)
    began = clock.now()
    world.agents["n2"].rank_dies(1, 139)
    assert world.recover().fault_at >= began


def test_a_message_about_a_job_that_is_not_there_does_nothing(world: World) -> None:
    jobs.drive(4711)
