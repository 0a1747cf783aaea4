"""Work that waits in the queue more than once is done once, and nothing that was asked for is lost."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from reliability import tasks
from reliability.models import Report, ServiceBeat
from reliability.services import clock, flood, reconcile, reports, turns
from tests.services.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_several_rounds_that_wait_one_is_run_and_the_next_when_its_time_has_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[datetime] = []

    def long(now: datetime) -> None:
        rounds.append(now)
        world.pass_time(3)

    monkeypatch.setattr(reconcile, "PIECES", (("Working", long, 0.0),))
    for _ in range(5):
        tasks.run_reconcile()
    assert len(rounds) == 1, "those that waited while it ran are done with it"
    world.pass_time(0.5)
    tasks.run_reconcile()
    assert len(rounds) == 2


def test_a_turn_that_lies_ahead_because_the_clock_was_set_back_is_free(world: World) -> None:
    now = clock.now()
    assert turns.take("x", now, 10)
    assert not turns.take("x", now + timedelta(seconds=9), 10)
    assert turns.take("x", now - timedelta(seconds=11), 10)
    turns.give_back("x")
    assert turns.take("x", now - timedelta(seconds=11), 10)


def test_reports_that_come_while_a_reading_waits_ask_for_no_other_and_all_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(reports.dispatch, "task", lambda name, *_args: asked.append(name))
    agent = world.agents["n1"]
    ServiceBeat.objects.filter(name=reports.WAITING).delete()

    def tell() -> None:
        agent.report("finding", {"code": "xid-13", "evidence": "x"})

    for _ in range(20):
        tell()
    assert asked == ["controller.process_reports"]
    tasks.process_reports()
    assert not Report.objects.filter(state="new").exists()
    tell()
    assert len(asked) == 2, "the one before had begun: it may not have seen this"
    world.pass_time(reports.ASK_AGAIN_S)
    tell()
    assert len(asked) == 3, "the message may have been lost"
    monkeypatch.setattr(flood, "MOST_WAITING", 1)
    world.pass_time(reports.ASK_AGAIN_S)
    agent.report("finding", {"code": "xid-79", "evidence": "y"})
    assert len(asked) == 4, "what has no room waits for a reading too"


def test_while_one_reads_others_leave_at_once_and_it_looks_again_before_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agents["n1"]
    read, left = reports._read, []

    def read_and_be_asked(until: float) -> tuple[int, bool]:
        done = read(until)
        if not left:
            agent.report("finding", {"code": "xid-13", "evidence": "kept behind the last look"})
            left.append(reports.process_new())
        return done

    monkeypatch.setattr(reports, "_read", read_and_be_asked)
    assert reports.process_new() == 1
    assert left == [0]
    assert not Report.objects.filter(state="new").exists()


def test_a_turn_that_cannot_be_given_back_stops_no_reading(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.agents["n1"].report("finding", {"code": "xid-13", "evidence": "x"})

    def busy(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "reliability_servicebeat" in sql and sql.startswith("UPDATE"):
            raise OperationalError("database is locked")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(busy):
        assert reports.process_new() == 1
    assert "could not be given back" in caplog.text


def test_what_follows_from_reports_is_done_also_when_the_database_fails_at_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agents["n1"]
    ids = []
    for code in ("xid-13", "xid-31"):
        agent.report("finding", {"code": code, "evidence": "x"})
        ids.append(Report.objects.latest("pk").pk)
    process, followed = reports._process, []

    def fails(pks: list[int]) -> Any:
        if ids[1] in pks:
            raise OperationalError("database is locked")
        yield from ((read, [("judge_node", 1)]) for read, _ in process(pks))

    monkeypatch.setattr(reports, "_process", fails)
    monkeypatch.setattr(reports, "follow_up", followed.append)
    with pytest.raises(OperationalError):
        reports.process_new()
    assert ("judge_node", 1) in followed
    monkeypatch.setattr(reports, "_process", process)
    assert reports.process_new() == 1, "the lock was let go"
