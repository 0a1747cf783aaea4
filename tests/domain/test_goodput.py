"""Goodput: where the time of a recovery went."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.goodput import kept_rate, lost_steps, stage_times, totals


def test_stages_are_listed_with_the_time_until_the_next() -> None:
    events = [(0.0, "fencing"), (0.5, "validating"), (2.0, "restoring"), (5.0, "completed")]
    assert stage_times(events) == [("fencing", 0.5), ("validating", 1.5), ("restoring", 3.0)]


def test_a_stage_that_goes_on_is_listed_once_and_one_that_comes_back_twice() -> None:
    events = [(0.0, "validating"), (1.0, "validating"), (3.0, "restoring"), (4.0, "validating"), (6.0, "failed")]
    stages = stage_times(events)
    assert stages == [("validating", 3.0), ("restoring", 1.0), ("validating", 2.0)]
    assert totals(stages) == {"validating": 5.0, "restoring": 1.0}


def test_a_clock_set_back_never_gives_negative_time() -> None:
    assert stage_times([(10.0, "fencing"), (4.0, "validating"), (5.0, "restoring")]) == [
        ("fencing", 0.0),
        ("validating", 1.0),
    ]


def test_nothing_or_one_event_has_no_times() -> None:
    assert stage_times([]) == []
    assert stage_times([(1.0, "fencing")]) == []


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("abc")), min_size=1))
def test_all_stages_together_last_from_the_first_event_to_the_last(events: list[tuple[int, str]]) -> None:
    ordered = sorted((float(at), stage) for at, stage in events)
    stages = stage_times(ordered)
    assert sum(spent for _, spent in stages) == ordered[-1][0] - ordered[0][0]
    assert all(first[0] != second[0] for first, second in pairwise(stages))


def test_lost_steps_are_those_done_again() -> None:
    assert lost_steps(120, 100) == 20
    assert lost_steps(7, None) == 7
    assert lost_steps(100, 120) == 0
    assert lost_steps(None, 100) is None


def test_the_kept_rate_is_what_is_left_of_saves_lost_steps_and_standstill() -> None:
    whole = {"executed": 100, "lost": 0, "running_s": 100.0, "saving_s": 0.0, "window_s": 100.0}
    assert kept_rate(**whole) == 1.0
    assert kept_rate(**{**whole, "saving_s": 5.0}) == 0.95
    assert kept_rate(**{**whole, "lost": 10}) == 0.9
    assert kept_rate(**{**whole, "window_s": 125.0}) == 0.8
    assert kept_rate(**{**whole, "lost": 200}) == kept_rate(**{**whole, "saving_s": 200.0}) == 0.0
