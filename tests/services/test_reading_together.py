"""Reports of copies are read many at a time, and the ledger says what it would say had each been read alone."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.forms.models import model_to_dict

from reliability.domain import ledger
from reliability.domain.ledger import CopyFacts, Tally
from reliability.models import Job, Report, Snapshot, SnapshotCopy, SnapshotEvent, SnapshotTier
from reliability.services import reports, snapshot_tally
from tests.services.test_ledger import assert_counts_are_right
from tests.services.world import Agent, World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def rank_agents(world: World) -> list[tuple[int, Agent]]:
    return [(rank, agent) for agent in world.agents.values() for rank in agent.ranks]


def tell(world: World, seed: int) -> None:
    """Have copies, removals and a bad copy told in an order of no meaning, some of them twice."""
    said = [
        (rank, agent, step, tier)
        for rank, agent in rank_agents(world)
        for step in (20, 30, 40, 50)
        for tier in ("memory", "ssd", "storage")
    ]
    chance = random.Random(seed)
    chance.shuffle(said)
    for rank, agent, step, tier in said:
        agent.save_one(rank, step, tier)
        what = {"snapshot_epoch": 1, "step": step, "rank": rank, "tier": tier}
        match chance.randrange(8):
            case 0:
                agent.report("snapshot_removed", what)
            case 1:
                agent.save_one(rank, step, tier)
            case 2 if tier == "ssd":
                agent.report("snapshot_problem", {**what, "code": "digest_mismatch", "message": "chunk 3"})


def said_of_snapshots() -> list[Any]:
    """Return what the ledger says, without what tells one database from another."""
    fields = ("rank", "tier", "state", "path", "problem", "digest", "snapshot__step", "node__name")
    copies = SnapshotCopy.objects.order_by("snapshot__step", "rank", "tier", "node__name")
    lines = SnapshotTier.objects.order_by("step", "tier")
    events = SnapshotEvent.objects.order_by("snapshot__step", "tier", "node__name", "target", "sentence")
    return [
        *copies.values_list(*fields),
        *[(copy.verified_at is None) for copy in copies],
        *[model_to_dict(line, exclude=("id", "snapshot", "job", "complete_at")) for line in lines],
        *[line.complete_at is None for line in lines],
        *Snapshot.objects.order_by("step").values_list("step", "held", "durable"),
        *events.values_list("snapshot__step", "tier", "node__name", "target", "ranks"),
        Job.objects.get().storage_step,
    ]


class Undone(Exception):
    """Undoes a transaction."""


@pytest.mark.parametrize("seed", range(5))
def test_however_many_are_read_at_a_time_the_ledger_says_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world.running_job()
    found = {}
    for together in (frozenset(), reports.READ_TOGETHER):
        try:
            with transaction.atomic():
                monkeypatch.setattr(reports, "READ_TOGETHER", together)
                monkeypatch.setattr(reports, "TOGETHER_S", 60.0)
                tell(world, seed)
                reports.process_new()
                assert not Report.objects.filter(state="new").exists()
                assert_counts_are_right()
                found[bool(together)] = said_of_snapshots()
                raise Undone
        except Undone:
            pass
    assert found[True] == found[False]


def test_a_report_that_is_no_good_is_refused_alone(world: World) -> None:
    world.running_job()
    (rank, agent), (other, _), *_ = rank_agents(world)
    agent.save_one(rank, 20, "ssd")
    agent.save_one(other, 20, "ssd")  # runs elsewhere
    agent.save_one(rank, 30, "ssd")
    assert reports.process_new() == 3
    refused = Report.objects.get(state="refused")
    assert f"{other} of job lm does not run on {agent.name}" in refused.refusal
    assert list(SnapshotCopy.objects.order_by("snapshot__step").values_list("snapshot__step", "rank")) == [
        (20, rank),
        (30, rank),
    ]
    assert_counts_are_right()


def test_what_cannot_be_counted_together_is_read_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One copy that cannot be counted is refused; it neither takes others with it nor comes first for ever."""
    world.running_job()
    (bad, agent), *good = rank_agents(world)
    agent.save_one(bad, 30, "storage")
    for rank, other in good:
        other.save_one(rank, 20, "storage")
    count = ledger.tally

    def overflows(copies: Iterable[CopyFacts]) -> Tally:
        known = list(copies)
        if any(copy.rank == bad for copy in known):
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return count(known)

    monkeypatch.setattr(ledger, "tally", overflows)
    assert reports.process_new() == 3
    assert "are read one by one" in caplog.text
    assert Report.objects.get(state="refused").body["rank"] == bad
    assert set(SnapshotCopy.objects.values_list("rank", flat=True)) == {rank for rank, _ in good}


def test_what_follows_is_done_of_those_that_were_read_before_one_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.running_job()
    for rank, agent in rank_agents(world):
        agent.save_one(rank, 20, "storage")
    alone: Any = reports._alone
    followed: list[Any] = []

    def together(pks: list[int]) -> Any:
        raise RuntimeError("not together")

    def fails_at_the_third(pk: int) -> Any:
        if Report.objects.filter(state="new").count() == 1:
            raise OperationalError("database is locked")
        return alone(pk)

    monkeypatch.setattr(reports, "_together", together)
    monkeypatch.setattr(reports, "_alone", fails_at_the_third)
    monkeypatch.setattr(reports, "follow_up", followed.append)
    with pytest.raises(OperationalError):
        reports.process_new()
    assert followed == [("copied", job.pk)]


def test_a_database_that_is_away_is_not_asked_again_for_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.running_job()
    for rank, agent in rank_agents(world):
        agent.save_one(rank, 20, "storage")
    tried: list[Any] = []

    def away(pks: Any) -> Any:
        tried.append(pks)
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(reports, "_together", away)
    monkeypatch.setattr(reports, "_alone", away)
    with pytest.raises(OperationalError):
        reports.process_new()
    assert len(tried) == 1


def test_a_long_group_is_read_in_transactions_that_others_need_not_wait_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "TOGETHER_S", 0.0)
    world.running_job()
    for step in (20, 30):
        for rank, agent in rank_agents(world):
            agent.save_one(rank, step, "storage")
    sizes: list[int] = []
    read = reports._together

    def seen(pks: list[int]) -> Any:
        done = read(pks)
        sizes.append(done[0])
        return done

    monkeypatch.setattr(reports, "_together", seen)
    assert reports.process_new() == 6
    assert sizes == [1] * 5, "the last is read alone"
    assert Job.objects.get().storage_step == 30


def test_what_is_left_of_a_long_group_is_read_before_what_came_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "TOGETHER_S", 0.0)
    world.running_job()
    (rank, agent), *_ = rank_agents(world)
    for step in (20, 30, 40):
        agent.save_one(rank, step, "ssd")
    what = {"snapshot_epoch": 1, "rank": rank, "tier": "ssd"}
    agent.report("snapshot_problem", {**what, "step": 40, "code": "digest_mismatch", "message": "chunk 3"})
    agent.report("snapshot_removed", {**what, "step": 30})
    reports.process_new()
    states = dict(SnapshotCopy.objects.values_list("snapshot__step", "state"))
    assert states == {20: "committed", 30: "deleted", 40: "corrupt"}


def test_what_waits_for_the_counts_is_not_done_when_the_block_is_undone() -> None:
    done: list[str] = []

    def undone() -> None:
        with transaction.atomic(), snapshot_tally.once():
            snapshot_tally.then("a", lambda: done.append("undone"))
            raise Undone

    with pytest.raises(Undone):
        undone()
    with snapshot_tally.once(), snapshot_tally.once():
        for _ in range(2):
            snapshot_tally.then("a", lambda: done.append("once"))
        assert done == []
    snapshot_tally.then("a", lambda: done.append("now"))
    assert done == ["once", "now"]
