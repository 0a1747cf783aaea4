"""Two processes at work on the same rows: who wins is decided by what is true, on every database."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction

from reliability.domain import faults
from reliability.domain.snapshots import SnapshotId
from reliability.errors import DomainError
from reliability.models import Incident, Job, Node, Rank, SnapshotCopy
from reliability.services import (
    beats,
    clock,
    incident_closing,
    incidents,
    node_incidents,
    quiet_incidents,
    snapshot_tally,
    snapshots,
)
from tests.services.world import World

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT_S = 20.0


def _beside(work: Callable[[], Any]) -> threading.Thread:
    """Do something over a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_heartbeat_written_while_a_rank_ends_does_not_bring_it_back(world: World) -> None:
    world.running_job()
    now = clock.now()
    world.agents["n2"].train()
    world.agents["n2"].beat()
    if connection.vendor == "sqlite":
        # One writer at a time: the end is simply there before the heartbeats.
        Rank.objects.filter(rank=1).update(state=Rank.State.FAILED)
        beats.flush(now)
    else:
        with transaction.atomic():
            Rank.objects.filter(rank=1).update(state=Rank.State.FAILED)
            writing = _beside(lambda: beats.flush(now))
            writing.join(1.0)
        writing.join(LIMIT_S)
        assert not writing.is_alive()
    assert Rank.objects.get(rank=1).state == Rank.State.FAILED


def test_heartbeats_do_not_wait_for_who_writes_a_rank(world: World) -> None:
    """Whoever holds a rank may want a node next, as the end of a recovery does."""
    world.running_job()
    for agent in world.agents.values():
        agent.train()
        agent.beat()
    before = Rank.objects.get(rank=0).step or 0
    with transaction.atomic():
        if connection.vendor != "sqlite":  # there a writer holds everything, and nothing can wait in a circle
            Rank.objects.filter(rank=1).update(phase="held")
            _flush_beside()
    beats.flush(clock.now())
    assert (Rank.objects.get(rank=0).step or 0) > before


def _flush_beside() -> None:
    writing = _beside(lambda: beats.flush(clock.now()))
    writing.join(LIMIT_S)
    assert not writing.is_alive()


def _tell(job: Job, node: Node, step: int, tier: str) -> None:
    told = {"snapshot_epoch": 1, "step": step, "rank": 0, "tier": tier, "path": "/x", "size_bytes": 1000}
    body = {**told, "digest": "blake2b:00", "stall_s": None, "drain_s": None}
    with transaction.atomic():
        snapshots.record_copy(job, node, body, at=clock.now())


def test_a_copy_told_again_while_it_is_found_corrupt_stays_corrupt(world: World) -> None:
    job = world.running_job()
    world.save(20)
    node, bad = Node.objects.get(name="n1"), [{"rank": 0, "tier": "ssd", "code": "corrupt"}]
    if connection.vendor == "sqlite":
        snapshots.mark_bad(job, SnapshotId(1, 20), bad, node=node)
        _tell(job, node, 20, "ssd")
    else:
        with transaction.atomic():
            snapshots.mark_bad(job, SnapshotId(1, 20), bad, node=node)
            telling = _beside(lambda: _tell(job, node, 20, "ssd"))
            telling.join(1.0)
            assert telling.is_alive()
        telling.join(LIMIT_S)
        assert not telling.is_alive()
    assert SnapshotCopy.objects.get(rank=0, tier="ssd").state == "corrupt"


@pytest.mark.slow
def test_saves_and_losses_of_many_snapshots_at_once_never_wait_in_a_circle(world: World) -> None:
    job = world.running_job()
    for step in range(10, 60, 10):
        world.save(step, tiers=("memory",))
    node, failed = Node.objects.get(name="n1"), []

    def often(work: Callable[[int], Any]) -> None:
        try:
            for number in range(12):
                work(number)
        except Exception as error:
            failed.append(error)

    working = [
        _beside(lambda: often(lambda number: _tell(job, node, 60 + 10 * number, "memory"))),
        _beside(lambda: often(lambda number: _tell(job, node, 10 + 10 * (number % 5), "memory"))),
        _beside(lambda: often(lambda _: snapshots.lose_local_copies(node, job, ("memory",)))),
    ]
    for each in working:
        each.join(LIMIT_S)
        assert not each.is_alive()
    assert not failed
    before = list(SnapshotCopy.objects.values_list("snapshot__held", flat=True))
    snapshot_tally.recount_all()
    assert list(SnapshotCopy.objects.values_list("snapshot__held", flat=True)) == before


def _closer() -> User:
    user = User.objects.create_user("olga")
    user.user_permissions.set(Permission.objects.filter(codename="close_incident"))
    return User.objects.get(pk=user.pk)


def _two_findings(world: World, of_a_job: bool) -> tuple[Incident, Callable[[], object]]:
    """Return an open incident with one finding judged, and what judges the next one."""
    node = world.agents["n1"].node
    job = world.running_job() if of_a_job else None
    if job is None:
        incidents.note(node, "net-link-slow", job=None)
        node_incidents.judge_node(node.pk)
        incidents.note(node, "net-link-slow", job=None)
        return Incident.objects.get(), lambda: node_incidents.judge_node(node.pk)
    incidents.note(node, "net-link-slow", job=job, epoch=job.epoch)
    incidents.judge(job.pk)
    incidents.note(node, "net-link-slow", job=job, epoch=job.epoch)
    return Incident.objects.get(), lambda: incidents.judge(job.pk)


def _judged_beside(judge: Callable[[], object], work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge, and do something over another connection when the judge has read everything and written nothing yet.

    On SQLite a writer holds everything: there whoever calls does it afterwards.
    """
    waiting: list[threading.Thread] = []
    judged = faults.judge

    def meanwhile(*given: Any, **more: Any) -> Any:
        if not waiting and connection.vendor != "sqlite":
            waiting.append(_beside(work))
            waiting[0].join(1.0)
        return judged(*given, **more)

    monkeypatch.setattr(faults, "judge", meanwhile)
    judge()
    for each in waiting:
        each.join(LIMIT_S)
        assert not each.is_alive()


@pytest.mark.parametrize("of_a_job", [True, False])
def test_a_person_who_closes_an_incident_while_it_is_judged_has_it_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, of_a_job: bool
) -> None:
    incident, judge = _two_findings(world, of_a_job)
    user = _closer()
    _judged_beside(judge, lambda: incident_closing.close(incident, by=user, note="seen"), monkeypatch)
    if connection.vendor == "sqlite":
        incident_closing.close(incident, by=user, note="seen")
    found = Incident.objects.get()
    assert (found.close_reason, found.findings.count()) == ("olga: seen", 2)


@pytest.mark.parametrize("of_a_job", [True, False])
def test_an_incident_opened_again_while_another_is_made_stays_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, of_a_job: bool
) -> None:
    incident, judge = _two_findings(world, of_a_job)
    user, said = _closer(), []
    incident_closing.close(incident, by=user, note="seen")
    Incident.objects.filter(pk=incident.pk).update(closed_at=clock.now() - timedelta(hours=1))

    def again() -> None:
        with pytest.raises(DomainError, match="is open"):
            incident_closing.reopen(incident, by=user, note="it is back")
        said.append("refused")

    _judged_beside(judge, again, monkeypatch)
    if connection.vendor == "sqlite":
        again()
    assert said == ["refused"]
    assert Incident.objects.filter(closed_at=None).count() == 1


@pytest.mark.parametrize("of_a_job", [True, False])
def test_an_incident_that_is_added_to_while_it_is_closed_for_quiet_stays_open(
    world: World, monkeypatch: pytest.MonkeyPatch, of_a_job: bool
) -> None:
    incident, judge = _two_findings(world, of_a_job)
    long_ago = clock.now() - timedelta(seconds=quiet_incidents.QUIET_S + 60)
    Incident.objects.update(opened_at=long_ago)
    incident.findings.update(found_at=long_ago, last_at=long_ago)
    monkeypatch.setattr(quiet_incidents.fault_context, "lasts", lambda *_args, **_more: False)
    _judged_beside(judge, lambda: quiet_incidents.close_quiet(clock.now()), monkeypatch)
    quiet_incidents.close_quiet(clock.now())
    found = Incident.objects.get()
    assert (found.closed_at, found.findings.count()) == (None, 2)
