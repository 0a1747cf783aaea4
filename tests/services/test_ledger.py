"""The ledger's counts always say what its copies say, what happened is kept, and decisions read few rows."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.forms.models import model_to_dict
from pytest_django import DjangoAssertNumQueries

from reliability.domain.snapshots import SnapshotId, Tier
from reliability.models import Job, Node, Snapshot, SnapshotCopy, SnapshotEvent, SnapshotTier
from reliability.selectors import core, ledger
from reliability.services import clock, keeping, reports, snapshot_events, snapshot_tally, snapshots
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
PACKAGE = Path(__file__).resolve().parents[2] / "reliability"


def state(step: int, tier: str) -> str:
    return SnapshotTier.objects.get(step=step, tier=tier).state


def counted() -> list[dict[str, object]]:
    lines = [model_to_dict(row) for row in SnapshotTier.objects.order_by("snapshot", "tier")]
    return lines + list(Snapshot.objects.order_by("pk").values("pk", "held", "durable"))


def assert_counts_are_right() -> None:
    before = counted()
    snapshot_tally.recount_all()
    assert counted() == before


def test_a_snapshot_is_written_then_committed_and_read_back_by_the_next_mover(world: World) -> None:
    world.running_job()
    first, *others = (agent for agent in world.agents.values() if agent.ranks)
    first.save(20, tiers=("memory",))
    reports.process_new()
    assert (state(20, "memory"), state(20, "ssd")) == ("writing", "absent")
    for agent in others:
        agent.save(20, tiers=("memory",))
    reports.process_new()
    assert state(20, "memory") == "committed"
    world.save(20, tiers=("ssd",))
    assert (state(20, "memory"), state(20, "ssd")) == ("verified", "committed")
    world.save(20, tiers=("storage",))
    assert (state(20, "ssd"), state(20, "storage")) == ("verified", "committed")
    assert_counts_are_right()


def test_a_copy_that_is_told_after_the_one_made_from_it_was_read_all_the_same(world: World) -> None:
    world.running_job()
    for tier in ("storage", "ssd", "memory"):
        world.save(20, tiers=(tier,))
    assert [state(20, tier) for tier in ("memory", "ssd", "storage")] == ["verified", "verified", "committed"]
    assert_counts_are_right()


def test_a_save_that_a_newer_one_overtook_is_superseded_and_counted(world: World) -> None:
    world.running_job()
    for step in (20, 30, 40):
        world.save(step, tiers=("memory",))
    agent = next(agent for agent in world.agents.values() if agent.ranks)
    rank = next(iter(agent.ranks))
    world.save(40, tiers=("ssd",))
    body = {"snapshot_epoch": 1, "step": 40, "rank": rank, "tier": "storage", "path": "/x", "size_bytes": 1}
    agent.report("snapshot_copy", {**body, "digest": "d", "superseded": 2})
    reports.process_new()
    assert [state(step, "ssd") for step in (20, 30, 40)] == ["superseded", "superseded", "committed"]
    assert SnapshotTier.objects.get(step=40, tier="storage").superseded == 2
    world.save(20, tiers=("ssd",))  # late, and there all the same
    assert state(20, "ssd") == "committed"
    assert_counts_are_right()


def test_shards_whose_slots_were_used_again_are_not_in_memory_any_more(world: World) -> None:
    world.running_job()
    for step in range(10, 70, 10):
        world.save(step, tiers=("memory",))
    assert [state(step, "memory") for step in range(10, 70, 10)] == ["removed"] * 3 + ["committed"] * 3
    assert_counts_are_right()


def test_after_going_back_the_shard_that_was_brought_back_stays_until_three_newer_ones_are_there(world: World) -> None:
    job = world.running_job()
    for step in (20, 40, 60):
        world.save(step, tiers=("memory", "ssd", "storage"))
    job.epochs.create(number=2, started_at=clock.now(), reason="x", restored_epoch=1, restored_step=20)
    Job.objects.update(epoch=2)
    for agent in world.agents.values():
        agent.epoch = 2
    world.save(30, tiers=("memory",))
    assert core.complete_snapshots(world.job(), tier=Tier.MEMORY)[-1] == SnapshotId(1, 20)
    for step in (35, 45):
        world.save(step, tiers=("memory",))
    assert SnapshotId(1, 20) not in core.complete_snapshots(world.job(), tier=Tier.MEMORY)
    assert_counts_are_right()


def test_a_bad_copy_is_kept_with_who_said_so_and_why(world: World) -> None:
    job = world.running_job()
    world.save(20)
    agent = next(agent for agent in world.agents.values() if agent.ranks)
    rank = next(iter(agent.ranks))
    problem = {"snapshot_epoch": 1, "step": 20, "rank": rank, "tier": "ssd", "code": "digest_mismatch"}
    agent.report("snapshot_problem", {**problem, "message": "chunk 3 differs"})
    reports.process_new()
    assert state(20, "ssd") == "corrupt"
    assert (
        f"{agent.name} could not use it: digest_mismatch: chunk 3 differs"
        in SnapshotCopy.objects.get(tier="ssd", rank=rank).problem
    )
    event = SnapshotEvent.objects.get(target="corrupt")
    assert (event.ranks, event.node, event.tier) == ([rank], agent.node, "ssd")
    agent.report("snapshot_problem", problem)
    reports.process_new()
    assert SnapshotEvent.objects.filter(target="corrupt").count() == 1
    assert snapshots.note_removed(job, SnapshotId(1, 20), tier=Tier.SSD, node=agent.node) == len(agent.ranks)
    assert state(20, "ssd") == "removed"
    assert_counts_are_right()


def test_a_removal_that_is_told_rank_by_rank_is_one_event(world: World) -> None:
    job = world.running_job()
    world.save(20)
    for rank in (2, 0, 1, 1):
        snapshots.note_removed(job, SnapshotId(1, 20), ranks=[rank], reason="It is old.")
    (event,) = SnapshotEvent.objects.filter(target="removed")
    assert (event.ranks, event.tier, event.sentence) == ([0, 1, 2], "storage", "It is old.")


def test_what_a_recovery_read_is_verified_and_what_a_trial_loaded_is_trial_restored(world: World) -> None:
    job = world.running_job()
    world.save(20, tiers=("memory", "storage"))
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    assert SnapshotEvent.objects.filter(target="verified").exists()
    assert SnapshotCopy.objects.filter(tier="memory", verified_at__isnull=False).count() == 3
    node, read = Node.objects.get(name="s1"), [(rank, "storage") for rank in range(3)]
    told = {"node": node, "at": clock.now(), "sentence": "Loaded on s1."}
    assert snapshot_events.mark_trial_restored(job, SnapshotId(1, 20), read, **told) == 3
    assert snapshot_events.mark_trial_restored(job, SnapshotId(1, 20), read, **told) == 0
    assert state(20, "storage") == "trial_restored"
    assert_counts_are_right()


def test_a_node_that_is_gone_loses_its_copies_and_floors_follow(world: World) -> None:
    job = world.running_job()
    world.save(20)
    world.save(40, tiers=("memory", "ssd"))
    assert snapshots.local_floors([world.job()]) == {"lm": 40}
    node = Node.objects.get(name="n1")
    assert snapshots.lose_local_copies(node, job, ("memory", "ssd")) == 4
    assert snapshots.local_floors([world.job()]) == {"lm": 20}
    assert (state(40, "ssd"), state(20, "storage")) == ("lost", "committed")
    assert_counts_are_right()


def test_copies_that_are_gone_are_forgotten_and_what_they_came_to_stays(world: World) -> None:
    world.running_job()
    for step in (20, 40):
        world.save(step)
    job = world.job()
    snapshots.note_removed(job, SnapshotId(1, 20), reason="Kept long enough.")
    for node in Node.objects.filter(slots__job=job):
        snapshots.lose_local_copies(node, job, ("memory", "ssd"))
    keeping.forget_old(clock.now() + timedelta(hours=25))
    assert not SnapshotCopy.objects.filter(snapshot__step=20).exists()
    snapshot_tally.recount_all()
    line = SnapshotTier.objects.get(step=20, tier="storage")
    assert (line.state, line.ever) == ("removed", 3)
    keeping.forget_old(clock.now() + timedelta(days=8))
    assert list(Snapshot.objects.values_list("step", flat=True)) == [40]
    snapshots.note_removed(job, SnapshotId(1, 40))
    keeping.forget_old(clock.now() + timedelta(hours=25))
    keeping.forget_old(clock.now() + timedelta(days=8))
    assert Snapshot.objects.filter(step=40).exists()  # that storage once held one must stay known
    assert core.once_complete(job, tier=Tier.STORAGE)


def test_decisions_and_heartbeats_ask_as_often_for_a_long_ledger_as_for_a_short_one(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    job = world.running_job()
    now = clock.now()
    made = Snapshot.objects.bulk_create(Snapshot(job=job, epoch=1, step=step, created_at=now) for step in range(1, 400))
    SnapshotCopy.objects.bulk_create(
        SnapshotCopy(snapshot=each, rank=rank, tier="storage", path="/x", size_bytes=1, digest="x", committed_at=now)
        for each in made
        for rank in range(3)
    )
    snapshot_tally.recount_all()
    with django_assert_max_num_queries(2):
        assert snapshots.local_floors([job]) == {"lm": 399}
    with django_assert_max_num_queries(5):
        assert len(ledger.copies_of(job)) == 3 * core.NEWEST_COMPLETE
    with django_assert_max_num_queries(2):
        assert core.newest_complete_step(job) == 399
    agent = next(agent for agent in world.agents.values() if agent.ranks)
    with django_assert_max_num_queries(46):
        agent.save_one(next(iter(agent.ranks)), 400, "memory")
        reports.process_new()


WRITES = re.compile(
    r"SnapshotCopy\(|SnapshotCopy\.objects[^\n]*\.(update|create|delete|bulk_\w+)\(|copies\.(update|delete)\("
)


def test_only_services_that_count_anew_write_copies() -> None:
    """Whoever creates, changes or deletes a copy counts its snapshot anew. Forgetting what is gone changes no count."""
    forgets, makes = PACKAGE / "services/keeping.py", PACKAGE / "models/snapshots.py"
    writers = [path for path in PACKAGE.rglob("*.py") if WRITES.search(path.read_text())]
    assert PACKAGE / "services/snapshots.py" in writers
    for path in set(writers) - {forgets, makes}:
        assert path.parent == PACKAGE / "services", path
        assert "snapshot_tally.recount(" in path.read_text(), path
