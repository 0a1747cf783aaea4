"""Periodic tasks go on when the clock of the machine is set."""

import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry

from webapp.celery import app
from webapp.ticking import Every, SteadyScheduler


class Steady:
    """A monotonic clock in the hands of a test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    clock = Steady()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.mark.parametrize("hours", [1, -1])
def test_a_task_is_due_by_the_clock_that_nobody_sets(steady: Steady, hours: int) -> None:
    every, said = Every(10.0), datetime.now(UTC) - timedelta(hours=hours)
    assert every.is_due(said).is_due, "at once after a start"
    steady.now += 4
    state: Any = every.is_due(said)
    assert (state.is_due, state.next) == (False, 6.0)
    steady.now += 6
    assert every.is_due(said).is_due


def test_a_schedule_that_is_kept_over_a_start_is_due_at_once() -> None:
    every = Every(10.0)
    every.is_due(datetime.now(UTC))
    kept = pickle.loads(pickle.dumps(every))
    assert kept.seconds == 10.0
    assert kept.is_due(datetime.now(UTC)).is_due


def test_the_scheduler_sends_on_although_the_clock_was_set_back(steady: Steady, tmp_path: Any) -> None:
    sent: list[float] = []

    class Noting(SteadyScheduler):
        producer = None  # no broker

        def apply_async(self, entry: ScheduleEntry, *_args: Any, **_how: Any) -> Any:
            sent.append(steady.now)

    scheduler = Noting(app=app, schedule_filename=str(tmp_path / "kept"), lazy=True)
    scheduler._store = {}
    scheduler.schedule = {"x": scheduler.Entry(name="x", task="x", schedule=Every(1.0), app=app)}
    for _ in range(40):
        steady.now += 0.25
        while scheduler.tick() == 0:
            pass
    assert 9 <= len(sent) <= 11
    assert app.conf.beat_scheduler == "webapp.ticking:SteadyScheduler"
    assert all(isinstance(each["schedule"], Every) for each in app.conf.beat_schedule.values())
