"""Work that waits in the queue more than once is done once, and nothing that was asked for is lost."""

from datetime import datetime, timedelta

import pytest

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

    monkeypatch.setattr(reconcile, "PIECES", (("Working", long),))
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
