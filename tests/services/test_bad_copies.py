"""What was found out about a copy stands, whoever tells of it again and whatever happens at the same moment."""

from datetime import timedelta

import pytest

from reliability.domain.snapshots import SnapshotId
from reliability.models import Job, Node, Snapshot, SnapshotCopy, SnapshotEvent, SnapshotTier
from reliability.services import clock, reports, snapshot_tally, snapshots
from tests.services.world import Agent, World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
DAMAGED = {"code": "digest_mismatch"}


def went_back(world: World) -> Agent:
    """Let a job take step 20 in its first attempt, and be in its second; return the agent of rank 0."""
    world.running_job()
    world.save(20)
    Job.objects.update(epoch=2)
    for agent in world.agents.values():
        agent.epoch = 2
    SnapshotCopy.objects.update(verified_at=None)
    return world.agents["n1"]


def told(agent: Agent, tier: str, *, restored: bool = False) -> SnapshotCopy:
    """Have an agent tell of step 20 of its rank 0; return the copy as it is then known."""
    body = {"snapshot_epoch": 1, "step": 20, "rank": 0, "tier": tier, "path": "/x", "size_bytes": 1000}
    agent.report("snapshot_copy", {**body, "digest": "blake2b:00", **({"restored": True} if restored else {})})
    reports.process_new()
    return SnapshotCopy.objects.get(rank=0, tier=tier)


@pytest.mark.parametrize("tier", ["memory", "ssd", "storage"])
def test_what_is_told_again_from_records_alone_proves_nothing_of_an_older_attempts_copies(
    world: World, tier: str
) -> None:
    agent = went_back(world)
    assert told(agent, tier).verified_at is None
    SnapshotCopy.objects.filter(rank=0, tier=tier).update(state="corrupt")
    copy = told(agent, tier)
    assert (copy.state, copy.verified_at) == ("corrupt", None)


@pytest.mark.parametrize("tier", ["memory", "ssd"])
@pytest.mark.parametrize("before", ["corrupt", "lost", "deleted", "committed"])
def test_what_a_restore_brought_is_there_and_verified_whatever_was_known_before(
    world: World, tier: str, before: str
) -> None:
    agent = went_back(world)
    SnapshotCopy.objects.filter(rank=0, tier=tier).update(state=before)
    copy = told(agent, tier, restored=True)
    assert copy.state == "committed"
    assert copy.verified_at is not None
    others = SnapshotCopy.objects.filter(tier=tier).exclude(rank=0)
    assert set(others.values_list("verified_at", flat=True)) == {None}


def test_what_an_order_found_in_a_place_is_not_held_against_what_it_brought_there(world: World) -> None:
    agent = went_back(world)
    world.pass_time(1)
    job, node, asked_at = world.job(), Node.objects.get(name="n1"), clock.now()
    world.pass_time(1)
    told(agent, "memory", restored=True)
    found = [{**DAMAGED, "rank": 0, "tier": tier} for tier in ("memory", "ssd")]
    assert snapshots.mark_bad(job, SnapshotId(1, 20), found, node=node, before=asked_at) == 1
    states = dict(SnapshotCopy.objects.filter(rank=0).values_list("tier", "state"))
    assert states == {"memory": "committed", "ssd": "corrupt", "storage": "committed"}
    later = asked_at + timedelta(hours=1)
    assert snapshots.mark_bad(job, SnapshotId(1, 20), found, node=node, before=later) == 1


def test_a_copy_that_is_found_corrupt_while_it_is_told_again_stays_corrupt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.running_job()
    world.save(20)
    node, lock = Node.objects.get(name="n1"), snapshot_tally.lock

    def found_first(keys: object) -> None:
        monkeypatch.setattr(snapshot_tally, "lock", lock)
        snapshots.mark_bad(job, SnapshotId(1, 20), [{**DAMAGED, "rank": 0, "tier": "ssd"}], node=node)
        lock(keys)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_tally, "lock", found_first)
    assert told(world.agents["n1"], "ssd").state == "corrupt"
    assert SnapshotTier.objects.get(tier="ssd").corrupt == 1


def test_a_shard_whose_slot_was_used_again_is_kept_as_such_unless_more_was_known_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.running_job()
    for step in (10, 20, 30):
        world.save(step, tiers=("memory",))
    agent, lock = world.agents["n1"], snapshot_tally.lock

    def found_first(keys: object) -> None:
        monkeypatch.setattr(snapshot_tally, "lock", lock)
        snapshots.mark_bad(job, SnapshotId(1, 10), [{**DAMAGED, "rank": 0, "tier": "memory"}], node=agent.node)
        lock(keys)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_tally, "lock", found_first)
    world.save(40, tiers=("memory",))
    first = SnapshotCopy.objects.filter(snapshot__step=10)
    assert dict(first.values_list("rank", "state")) == {0: "corrupt", 1: "deleted", 2: "deleted"}
    removed = SnapshotEvent.objects.filter(snapshot__step=10, target="removed")
    assert sorted(rank for event in removed for rank in event.ranks) == [1, 2]
    assert set(removed.values_list("sentence", flat=True)) == {"Its slot in memory was used again."}


def test_a_snapshot_that_is_overtaken_while_it_is_counted_is_superseded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.running_job()
    world.agents["n1"].save(20, tiers=("ssd",))
    reports.process_new()
    world.save(40, tiers=("ssd",))
    SnapshotTier.objects.filter(step=20, tier="ssd").update(state="absent")
    monkeypatch.setattr(snapshot_tally._Whole, "after", lambda *_: False)  # looked before the other was there
    snapshot_tally.recount([Snapshot.objects.get(step=20).pk])
    assert SnapshotTier.objects.get(step=20, tier="ssd").state == "superseded"


@pytest.mark.parametrize(("code", "state"), [("digest_mismatch", "corrupt"), ("doubted_step", "lost")])
def test_bytes_that_were_never_a_whole_step_are_no_good_wherever_they_lie(world: World, code: str, state: str) -> None:
    world.running_job()
    world.save(20)
    first, second = (world.agents[name] for name in ("n1", "n2"))
    first.save_one(0, 40, "storage")
    SnapshotCopy.objects.filter(snapshot__step=20, rank=0, tier="memory").update(digest="blake2b:01")
    problem = {"snapshot_epoch": 1, "step": 20, "tier": "ssd", "code": code}
    second.report("snapshot_problem", {**problem, "rank": 0, "never_whole": True})  # it has none
    reports.process_new()
    assert not SnapshotCopy.objects.exclude(state="committed").exists()
    first.report("snapshot_problem", {**problem, "rank": 0, "never_whole": True})
    reports.process_new()
    bad = SnapshotCopy.objects.exclude(state="committed").order_by("tier")
    assert list(bad.values_list("snapshot__step", "rank", "tier", "state")) == [
        (20, 0, "ssd", state),
        (20, 0, "storage", state),
    ]
    assert world.job().storage_step is None
    second.report("snapshot_problem", {**problem, "rank": 1})  # damage of one copy says nothing of the others
    reports.process_new()
    assert dict(SnapshotCopy.objects.filter(snapshot__step=20, rank=1).values_list("tier", "state")) == {
        "memory": "committed",
        "ssd": state,
        "storage": "committed",
    }
