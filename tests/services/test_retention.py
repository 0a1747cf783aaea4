"""Retention: what the rules of a job decide, who is told to remove it, and what the ledger says when it is gone."""

import json
from datetime import timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from reliability.api import ingest
from reliability.domain.retention import TierRule
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import InvalidInput
from reliability.models import Failover, Job, Node, PlannedRemoval, Report, Snapshot, SnapshotCopy, TrialRestore
from reliability.selectors import core
from reliability.selectors import retention as selected
from reliability.services import clock, reports, retention, snapshot_tally, snapshots
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _no_flusher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest.flusher, "ensure", lambda: None)


@pytest.fixture
def job(world: World) -> Job:
    """Return a job that has saved ten steps on all tiers; the last of them as nodes report it."""
    job = world.running_job()
    made = [Snapshot.objects.create(job=job, epoch=1, step=step, created_at=clock.now()) for step in range(10, 100, 10)]
    nodes = {rank: Node.objects.get(name=name) for rank, name in core.placement(job).items()}
    facts = {"path": "/x", "size_bytes": 1000, "digest": "blake2b:00", "committed_at": clock.now()}
    SnapshotCopy.objects.bulk_create(
        SnapshotCopy(
            snapshot=snapshot, rank=rank, tier=tier, node=None if tier is Tier.STORAGE else nodes[rank], **facts
        )
        for snapshot in made
        for rank in nodes
        for tier in (Tier.SSD, Tier.STORAGE)
    )
    snapshot_tally.recount(snapshot.pk for snapshot in made)
    world.save(100)
    return job


def stored(job: Job, tier: Tier = Tier.STORAGE) -> list[int]:
    copies = SnapshotCopy.objects.filter(snapshot__job=job, tier=tier, state=CopyState.COMMITTED)
    return sorted(set(copies.values_list("snapshot__step", flat=True)))


def planned(job: Job, tier: Tier) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for row in PlannedRemoval.objects.filter(copy__snapshot__job=job, copy__tier=tier):
        found.setdefault(row.copy.snapshot.step, set()).add(row.node.name)
    return found


def obey(world: World) -> None:
    """Have every node remove what it is told, and report it."""
    for agent in world.agents.values():
        if not agent.alive:
            continue
        for name, tiers in retention.may_go(agent.node).items():
            for tier, places in tiers.items():
                for epoch, step, rank in places:
                    body = {"snapshot_epoch": epoch, "step": step, "rank": rank, "tier": tier}
                    agent.job = agent.job or name
                    agent.report("snapshot_removed", body, epoch=0)
    reports.process_new()


def settle(world: World, job: Job) -> None:
    for _ in range(20):
        retention.decide(job, clock.now())
        alive = [agent.name for agent in world.agents.values() if agent.alive]
        if not PlannedRemoval.objects.filter(node__name__in=alive).exists():
            return
        obey(world)
    raise AssertionError("removals never end")


def test_without_rules_what_was_always_kept_is_kept(world: World, job: Job) -> None:
    settle(world, job)
    assert stored(job, Tier.SSD) == [70, 80, 90, 100]
    assert stored(job) == [30, 40, 50, 60, 70, 80, 90, 100]


def test_each_node_is_told_of_its_own_copies_and_the_reason_stands_on_the_ledger(world: World, job: Job) -> None:
    retention.set_rule(job, Tier.SSD, TierRule(keep_newest=9), by="ann")
    retention.set_rule(job, Tier.STORAGE, TierRule(keep_newest=10), by="ann")
    retention.decide(job, clock.now())
    assert planned(job, Tier.SSD) == {10: {"n1", "n2", "n3"}}
    first = world.agents["n1"]
    [rank] = first.ranks
    assert retention.may_go(first.node) == {"lm": {"ssd": [[1, 10, rank]]}}
    obey(world)
    row = SnapshotCopy.objects.get(snapshot__step=10, tier=Tier.SSD, rank=rank)
    assert (row.state, row.problem) == (CopyState.DELETED, "It is older than the newest 9 that are kept.")
    assert not PlannedRemoval.objects.exists()


def test_the_answer_to_a_heartbeat_names_what_may_go_and_says_so_when_it_is_nothing(world: World, job: Job) -> None:
    agent = world.agents["n1"]
    agent.beat()
    raw = {
        "node": "n1",
        "incarnation": agent.incarnation,
        "heartbeat": {"jobs": [{"job": "lm", "epoch": 1, "container": "running", "ranks": []}]},
    }

    def answer() -> dict[str, object]:
        status, told = ingest._batch(json.dumps(raw).encode(), agent.token)
        assert status == 200
        return told

    assert answer()["may_go"] == {"lm": {"ssd": [], "storage": []}}
    retention.decide(job, clock.now())
    [rank] = agent.ranks
    told = answer()
    assert told["may_go"]["lm"]["ssd"] == [[1, step, rank] for step in (10, 20, 30, 40, 50, 60)]  # type: ignore[index]
    assert told["ssd_floor"] == {"lm": 100}
    raw["heartbeat"] = {"jobs": []}
    assert answer()["may_go"]["lm"]["ssd"], "a node is told also when it no longer runs the job"  # type: ignore[index]
    assert answer()["epochs"] == {"lm": 1}


def test_one_node_removes_from_storage_for_those_that_are_gone(world: World, job: Job) -> None:
    Node.objects.filter(name="n2").update(health="unreachable")
    retention.decide(job, clock.now())
    by_rank = {
        row.copy.rank: row.node.name
        for row in PlannedRemoval.objects.filter(copy__tier=Tier.STORAGE, copy__snapshot__step=10)
    }
    placement = core.placement(job)
    gone = next(rank for rank, name in placement.items() if name == "n2")
    first = next(name for rank, name in sorted(placement.items()) if name != "n2")
    assert by_rank == {**placement, gone: first}
    Node.objects.filter(name="n2").update(health="healthy")
    retention.decide(job, clock.now())
    assert planned(job, Tier.STORAGE)[10] == {"n1", "n2", "n3"}, "who comes back does its own"


def test_a_copy_on_storage_is_believed_gone_only_from_a_node_of_the_job(world: World, job: Job) -> None:
    stranger = world.agents["s1"]
    stranger.job, stranger.epoch = "lm", 1
    stranger.report("snapshot_removed", {"snapshot_epoch": 1, "step": 100, "rank": 0, "tier": "storage"})
    reports.process_new()
    assert stored(job)[-1] == 100
    assert "was not told to remove" in Report.objects.get(kind="snapshot_removed").refusal


def test_the_same_message_again_changes_nothing_and_a_stale_epoch_does_not_matter(world: World, job: Job) -> None:
    agent = world.agents["n1"]
    [rank] = agent.ranks
    Job.objects.filter(pk=job.pk).update(epoch=3)
    body = {"snapshot_epoch": 1, "step": 10, "rank": rank, "tier": "ssd"}
    for _ in range(2):
        agent.report("snapshot_removed", body, epoch=1)
        reports.process_new()
    assert set(Report.objects.filter(kind="snapshot_removed").values_list("state", flat=True)) == {"processed"}
    assert SnapshotCopy.objects.get(snapshot__step=10, tier=Tier.SSD, rank=rank).state == CopyState.DELETED


def test_what_was_decided_is_taken_back_when_what_would_stay_turns_out_to_be_no_good(world: World, job: Job) -> None:
    retention.set_rule(job, Tier.STORAGE, TierRule(keep_newest=1), by="ann")
    retention.decide(job, clock.now())
    assert sorted(planned(job, Tier.STORAGE)) == list(range(10, 100, 10))
    agent = world.agents["n1"]
    [rank] = agent.ranks
    for step in (100, 90):
        problem = {"rank": rank, "tier": "storage", "code": "digest_mismatch"}
        snapshots.mark_bad(job, SnapshotId(1, step), [problem], node=agent.node)
    retention.decide(job, clock.now())
    assert sorted(planned(job, Tier.STORAGE)) == list(range(10, 80, 10)), "80 is the newest good one now"


def test_nothing_is_decided_while_a_recovery_is_open_or_of_a_snapshot_that_is_tried(world: World, job: Job) -> None:
    snapshot = job.snapshots.get(step=10)
    TrialRestore.objects.create(
        job=job, snapshot=snapshot, node=world.agents["s1"].node, asked_by="ann", started_at=clock.now()
    )
    retention.decide(job, clock.now())
    assert 10 not in planned(job, Tier.STORAGE)
    assert 20 in planned(job, Tier.STORAGE)
    world.agents["n1"].rank_dies(*world.agents["n1"].ranks, 1)
    world.until(lambda: core.open_failover(job) is not None, tick_s=0.1)
    retention.decide(world.job(), clock.now())
    assert not PlannedRemoval.objects.exists()
    assert Failover.objects.exists()


def test_after_a_recovery_the_abandoned_line_goes_once_the_new_attempt_has_saved(world: World, job: Job) -> None:
    for agent in world.agents.values():
        agent.stepping = False
    world.agents["n1"].power_off()
    world.until(lambda: Failover.objects.exists())
    for agent in world.agents.values():
        agent.stepping = True
    world.recover()
    job = world.job()
    assert Failover.objects.get().restore_step == 100
    for name in ("n2", "n3", "s1"):
        world.agents[name].save_one(min(world.agents[name].ranks), 150, "ssd", epoch=1)
    reports.process_new()
    settle(world, job)
    before = stored(job, Tier.SSD)
    world.save(110)
    settle(world, job)
    assert 150 in before
    assert 150 not in stored(job, Tier.SSD)
    assert stored(job)[-1] == 110


@pytest.mark.parametrize(
    ("tier", "rule", "field"),
    [
        (Tier.STORAGE, TierRule(keep_newest=4, cap_bytes=2999), "storage.cap_bytes"),
        (Tier.SSD, TierRule(keep_newest=4, cap_bytes=999), "ssd.cap_bytes"),
        (Tier.SSD, TierRule(keep_newest=0), "ssd.keep_newest"),
        (Tier.MEMORY, TierRule(keep_newest=1), "tier"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_and_the_old_one_holds(
    job: Job, tier: Tier, rule: TierRule, field: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        retention.set_rules(job, {Tier.STORAGE: TierRule(keep_newest=2), tier: rule}, by="ann")
    assert error.value.field == field
    assert selected.rules_of(job)[Tier.STORAGE] == TierRule(keep_newest=8)


def test_a_page_is_told_what_each_tier_keeps_and_holds(world: World, job: Job) -> None:
    retention.set_rule(job, Tier.SSD, TierRule(keep_newest=2, cap_bytes=10**6), by="ann")
    retention.decide(job, clock.now())
    ssd, storage = selected.outlook(job, clock.now(), most=50).uses
    assert (ssd.tier, ssd.snapshots, ssd.size_bytes, ssd.going, ssd.default) == (Tier.SSD, 10, 10_000, 8, False)
    assert (storage.snapshots, storage.size_bytes, storage.going, storage.default) == (10, 30_000, 2, True)


def test_of_a_long_ledger_a_page_is_told_what_the_last_round_planned_and_reads_no_snapshot_by_itself(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    exact = selected.outlook(job, clock.now(), most=50)
    assert (len(exact.going), exact.planned) == (8, False)
    monkeypatch.setattr(selected, "DECIDED_AT_ONCE", 19)
    assert selected.outlook(job, clock.now(), most=50).going == []
    retention.decide(job, clock.now())
    monkeypatch.setattr(selected, "held", lambda _: pytest.fail("the whole ledger was read"))
    with django_assert_max_num_queries(5):
        found = selected.outlook(job, clock.now(), most=50)
    assert (found.going, found.planned) == (exact.going, True)
    was = {use.tier: (use.snapshots, use.size_bytes) for use in exact.uses}
    assert {use.tier: (use.snapshots, use.size_bytes) for use in found.uses} == was
    assert [use.going for use in found.uses] == [6, 2]
    assert len(selected.outlook(job, clock.now(), most=3).going) == 3


def test_copies_of_a_node_that_is_gone_hold_up_no_others_however_many_they_are(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 3)
    own = {name: min(world.agents[name].ranks) for name in ("n1", "n2", "n3")}
    old = SnapshotCopy.objects.filter(snapshot__step__lte=50, tier=Tier.SSD).exclude(node__name="n2")
    old.update(state=CopyState.DELETED)
    Node.objects.filter(name="n2").update(health="unreachable")
    for _ in range(4):
        retention.decide(job, clock.now())
    assert planned(job, Tier.SSD) == {60: {"n1", "n3"}}
    Node.objects.filter(name="n2").update(health="healthy")
    settle(world, job)
    gone = SnapshotCopy.objects.filter(rank=own["n2"], tier=Tier.SSD, state=CopyState.DELETED)
    assert sorted(gone.values_list("snapshot__step", flat=True)) == [10, 20, 30, 40, 50, 60]


def test_a_node_that_never_answers_holds_up_no_other_and_what_it_does_not_do_on_storage_another_does(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_PLANNED", 12)
    silent = world.agents["n1"]
    [rank] = silent.ranks
    left = set(SnapshotCopy.objects.filter(rank=rank, snapshot__step__lte=60).values_list("pk", flat=True))

    def round_of_the_others() -> None:
        retention.decide(job, clock.now())
        silent.alive = False
        obey(world)
        silent.alive = True

    for _ in range(8):
        round_of_the_others()
    assert PlannedRemoval.objects.filter(node=silent.node).count() == 4, "its share of what a job's nodes are to do"
    others = SnapshotCopy.objects.filter(snapshot__step__lte=60, tier=Tier.SSD).exclude(pk__in=left)
    assert set(others.values_list("state", flat=True)) == {CopyState.DELETED}
    PlannedRemoval.objects.update(planned_at=clock.now() - timedelta(seconds=retention.UNANSWERED_S))
    for _ in range(3):
        round_of_the_others()
    assert stored(job) == [30, 40, 50, 60, 70, 80, 90, 100]


def test_no_node_is_told_to_remove_while_a_recovery_is_open_or_what_is_being_tried(world: World, job: Job) -> None:
    retention.decide(job, clock.now())
    agent = world.agents["n1"]

    def told() -> set[int]:
        return {place[1] for places in retention.may_go(agent.node).get("lm", {}).values() for place in places}

    assert told() == {10, 20, 30, 40, 50, 60}
    old, lent = job.snapshots.get(step=10), world.agents["s1"].node
    TrialRestore.objects.create(job=job, snapshot=old, node=lent, asked_by="ann", started_at=clock.now())
    assert told() == {20, 30, 40, 50, 60}
    TrialRestore.objects.update(state=TrialRestore.State.PASSED)
    assert told() == {10, 20, 30, 40, 50, 60}
    agent.rank_dies(*agent.ranks, 1)
    world.until(lambda: core.open_failover(job) is not None, tick_s=0.1)
    assert PlannedRemoval.objects.exists()
    assert told() == set()


def test_what_is_told_at_once_is_shared_by_all_jobs_and_tiers_of_a_node(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention.set_rule(job, Tier.STORAGE, TierRule(keep_newest=4), by="ann")
    retention.decide(job, clock.now())
    other = world.submit("other", nodes=1)
    node = world.agents["n1"].node
    for step in (10, 20, 30):
        snapshot = Snapshot.objects.create(job=other, epoch=1, step=step, created_at=clock.now())
        facts = {"path": "/x", "size_bytes": 1, "digest": "", "committed_at": clock.now()}
        copy = SnapshotCopy.objects.create(snapshot=snapshot, rank=0, tier=Tier.SSD, node=node, **facts)
        PlannedRemoval.objects.create(
            copy=copy, job=other, snapshot=snapshot, tier=Tier.SSD, node=node, why="not_kept", planned_at=clock.now()
        )
    monkeypatch.setattr(selected, "MOST_TOLD", 6)
    told = retention.may_go(node)
    shares = {(name, tier): len(places) for name, tiers in told.items() for tier, places in tiers.items()}
    assert shares == {("lm", "ssd"): 2, ("lm", "storage"): 2, ("other", "ssd"): 2}
    assert [place[1] for place in told["other"]["ssd"]] == [10, 20]


def test_what_storage_shall_keep_waits_on_the_ssds_while_storage_is_behind(world: World, job: Job) -> None:
    retention.set_rule(job, Tier.SSD, TierRule(keep_newest=2), by="ann")
    retention.set_rule(job, Tier.STORAGE, TierRule(keep_newest=2, every_steps=50), by="ann")
    SnapshotCopy.objects.filter(snapshot__step__range=(50, 99), tier=Tier.STORAGE).update(state=CopyState.DELETED)
    snapshot_tally.recount(job.snapshots.values_list("pk", flat=True))
    settle(world, job)
    assert stored(job, Tier.SSD) == [50, 90, 100]
    Job.objects.update(storage_dir="")
    settle(world, world.job())
    assert stored(job, Tier.SSD) == [90, 100], "without storage it waits for none"
