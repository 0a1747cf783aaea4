"""Does counting finished saves add up to what a plain state machine does, event by event?"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.simulation import Job, replay
from reliability.simulation.job import Always, PlannedStops, run
from reliability.simulation.laws import Floats
from reliability.simulation.ledger import Ledger
from tests.simulation.machine import ACCOUNTS, Machine

JOB = {"period_s": 600.0, "save_stall_s": 20.0, "recovery_s": 90.0, "downtime_s": 45.0, "drain_s": 250.0}

jobs = st.fixed_dictionaries(
    {
        "save_stall_s": st.floats(0, 50),
        "period_s": st.floats(51, 900),
        "recovery_s": st.floats(0, 400),
        "downtime_s": st.floats(0, 400),
        "drain_s": st.one_of(st.just(0.0), st.floats(0, 1500)),
    }
)
uptimes = st.lists(st.floats(0.1, 20_000), min_size=1, max_size=30)


class Announced(PlannedStops):
    """Planned stops at instants that are given."""

    def __init__(self, instants: list[float]) -> None:
        self._coming = iter([*instants, math.inf])
        self._next = np.array([next(self._coming)])

    def met(self, where: np.ndarray) -> None:
        if where[0]:
            self._next = np.array([next(self._coming)])


def raised(values: dict[str, float]) -> dict[str, float]:
    return {**values, "period_s": max(values["period_s"], values["drain_s"])}


def booked(job: Job, ups: list[float], stops: PlannedStops | None = None) -> Ledger:
    legs = iter(ups)

    def one() -> Floats | None:
        up = next(legs, None)
        return None if up is None else np.array([up])

    return run(job, one, Always(job.downtime_s), replicas=1, failures=10**9, late=lambda: False, stops=stops)


def assert_same(ledger: Ledger, machine: Machine) -> None:
    assert ledger.failures == machine.failures
    for account in ACCOUNTS:
        assert getattr(ledger, account)[0] == pytest.approx(machine.spent[account], rel=1e-9, abs=1e-5), account


@given(jobs, uptimes)
def test_legs_add_up_to_what_the_state_machine_does(values: dict[str, float], ups: list[float]) -> None:
    machine = Machine(**raised(values))
    machine.live(ups)
    assert_same(booked(Job(**values), ups), machine)


@given(uptimes, st.lists(st.floats(0, 50_000), max_size=20).map(sorted))
def test_planned_stops_are_met_at_the_end_of_the_next_save(ups: list[float], stops: list[float]) -> None:
    machine = Machine(**JOB, stop_requests=stops)
    machine.live(ups)
    assert_same(booked(Job(**JOB), ups, Announced(stops)), machine)


def test_a_planned_stop_loses_nothing_and_a_failure_loses_what_no_copy_holds() -> None:
    ledger = booked(Job(**JOB), [1300.0], Announced([100.0]))
    assert (ledger.useful[0], ledger.saving[0], ledger.rollback[0]) == (580, 20, 0)
    ledger = booked(Job(**JOB), [1300.0])
    assert (ledger.useful[0], ledger.saving[0], ledger.rollback[0]) == (580, 20, 610)


def test_a_copy_counts_from_the_moment_its_drain_has_ended() -> None:
    just_before, just_after = 90 + 600 + 250 - 0.001, 90 + 600 + 250 + 0.001
    assert booked(Job(**JOB), [just_before]).useful[0] == 0
    assert booked(Job(**JOB), [just_after]).useful[0] == 580


def test_a_period_shorter_than_the_drain_is_raised_to_it() -> None:
    slow = Job(**{**JOB, "drain_s": 900.0})
    assert (slow.cycle_s, slow.work_s) == (900, 880)


def test_a_hit_in_the_recovery_costs_the_downtime_and_begins_it_again() -> None:
    ledger = booked(Job(**JOB), [50.0, 50.0, 90.0])
    assert (ledger.downtime[0], ledger.recovery[0], ledger.useful[0]) == (135, 190, 0)


def test_a_hit_in_the_stall_loses_the_segment() -> None:
    without_drain = Job(**{**JOB, "drain_s": 0.0})
    assert booked(without_drain, [90 + 1200 - 1.0]).useful[0] == 580
    assert booked(without_drain, [90 + 1200 + 1.0]).useful[0] == 1160


@given(jobs, uptimes)
def test_a_replay_is_the_same_machine_on_the_calendar(values: dict[str, float], ups: list[float]) -> None:
    machine = Machine(**raised(values))
    machine.live(ups)
    replayed = replay([up + values["downtime_s"] for up in ups], Job(**values))
    assert replayed.ettr == pytest.approx(machine.spent["useful"] / machine.now, rel=1e-9, abs=1e-9)
    assert replayed.failures == machine.failures
