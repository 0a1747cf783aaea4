"""When a tier runs full, how that is told, and when it is taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import room
from reliability.domain.room import Level, Limits, Space, Trend
from reliability.errors import InvalidInput

GB = 10**9


def judged(
    free: float, total: float = 100.0, *, rate: float | None = None, warned: bool = False, **more: int
) -> room.Verdict:
    space = Space(free_bytes=int(free * GB), total_bytes=int(total * GB), **more)
    return room.judge(space, rate, Limits(), warned=warned)


def test_a_disk_that_is_full_within_the_hour_is_told_with_the_minutes() -> None:
    found = judged(60, rate=60 * GB / 2400)
    assert (found.level, found.words) == (Level.LOW, "Full in about 40 min at this rate.")


def test_a_disk_that_does_not_fill_is_no_news_however_full_it_is_while_many_saves_fit() -> None:
    assert judged(3, save_bytes=GB // 10).level is Level.OK
    assert judged(3, save_bytes=GB).level is Level.LOW
    assert "room for 3 more saves" in judged(3, save_bytes=GB).words
    assert judged(3).level is Level.LOW


def test_no_room_for_the_next_save_is_full() -> None:
    assert judged(1, save_bytes=2 * GB).level is Level.FULL
    assert judged(0).level is Level.FULL


def test_inodes_run_out_as_bytes_do() -> None:
    assert judged(90, free_inodes=10, total_inodes=10**6).level is Level.FULL
    assert "1.0 % of its inodes" in judged(90, free_inodes=10_000, total_inodes=10**6).words
    assert judged(90, free_inodes=900_000, total_inodes=10**6).level is Level.OK


def test_a_warning_is_taken_back_only_when_it_is_clearly_better() -> None:
    rate = 60 * GB / 3700
    assert judged(60, rate=rate).level is Level.OK
    assert judged(60, rate=rate, warned=True).level is Level.LOW
    assert judged(60, rate=rate / 2, warned=True).level is Level.OK
    assert judged(6).level is Level.OK
    assert judged(6, warned=True).level is Level.LOW


def test_the_rate_is_measured_from_look_to_look_and_what_is_given_back_counts() -> None:
    trend = room.observed(None, 100 * GB, at=0)
    assert trend.bytes_per_s is None
    assert room.observed(trend, 90 * GB, at=5) == trend  # too soon
    trend = room.observed(trend, 70 * GB, at=30)
    assert trend.bytes_per_s == pytest.approx(GB)
    assert trend.sure_bytes_per_s is None
    for turn in range(1, 60):  # a saw: 1 GB/s for half a minute, then all of it is given back
        trend = room.observed(trend, (70 if turn % 2 == 0 else 40) * GB, at=30 + 30 * turn)
    assert abs(trend.bytes_per_s or 0) < 0.2 * GB


def _levels(frees: list[float], *, every_s: float = 25.0) -> list[Level]:
    """Return what is said look by look of a tier of 100 GB with so much free."""
    trend, level, found = None, Level.OK, []
    for turn, free in enumerate(frees):
        trend = room.observed(trend, int(free * GB), at=turn * every_s)
        space = Space(free_bytes=int(free * GB), total_bytes=100 * GB)
        warned = level is not Level.OK
        rate = trend.bytes_per_s if warned else trend.sure_bytes_per_s
        level = room.judge(space, rate, Limits(), warned=warned).level
        found.append(level)
    return found


@pytest.mark.parametrize("taken", [[0, 60], [0, 0, 60], [0, 30, 30, 30.1, 30.2]])
def test_what_is_taken_once_at_the_start_of_a_job_is_no_filling(taken: list[float]) -> None:
    frees = [100.0 - each for each in taken] + [100.0 - taken[-1]] * 20
    assert set(_levels(frees)) == {Level.OK}


@pytest.mark.parametrize("minutes", [3, 10, 30, 50])
def test_what_really_fills_is_told_well_before_it_is_full(minutes: int) -> None:
    looks = int(minutes * 60 / 25)
    found = _levels([100.0 * (1 - turn / looks) for turn in range(looks)])
    assert found[len(found) // 3 :] == [Level.LOW] * (len(found) - len(found) // 3)


def test_a_clock_that_goes_back_starts_the_measurement_anew() -> None:
    trend = Trend(anchor_bytes=GB, anchor_at=1000.0, bytes_per_s=5.0)
    assert room.observed(trend, 2 * GB, at=100.0) == Trend(anchor_bytes=2 * GB, anchor_at=100.0, bytes_per_s=5.0)


@pytest.mark.parametrize(
    "told",
    [None, [], "x", {}, {"free_bytes": 1}, {"free_bytes": 2, "total_bytes": 1}, {"free_bytes": True, "total_bytes": 9},
     {"free_bytes": -1, "total_bytes": 9}, {"free_bytes": 1, "total_bytes": 2**63},
     {"free_bytes": "1", "total_bytes": 9}],
)  # fmt: skip
def test_what_is_no_space_is_left_out(told: object) -> None:
    assert room.read(told) is None


def test_inodes_that_make_no_sense_are_unknown() -> None:
    whole = {"free_bytes": 1, "total_bytes": 9}
    assert room.read({**whole, "free_inodes": 5, "total_inodes": 0}) == Space(free_bytes=1, total_bytes=9)
    assert room.read({**whole, "free_inodes": 5, "total_inodes": 9}) == Space(
        free_bytes=1, total_bytes=9, free_inodes=5, total_inodes=9
    )


@pytest.mark.parametrize("bad", [{"full_within_s": -1.0}, {"full_within_s": float("nan")}, {"free_share": 1.0}])
def test_limits_that_are_none_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Limits(**bad)


@given(
    free=st.integers(0, 2**50), more=st.integers(1, 2**50), rate=st.none() | st.floats(-1e12, 1e12),
    warned=st.booleans(), inodes=st.none() | st.integers(0, 10**6), save=st.none() | st.integers(0, 2**50),
)  # fmt: skip
def test_a_verdict_has_words_exactly_when_it_warns(
    free: int, more: int, rate: float | None, warned: bool, inodes: int | None, save: int | None
) -> None:
    total = 10**6 if inodes is not None else None
    space = Space(free_bytes=free, total_bytes=free + more, free_inodes=inodes, total_inodes=total, save_bytes=save)
    found = room.judge(space, rate, Limits(), warned=warned)
    assert bool(found.words) == (found.level is not Level.OK)
    assert found.full_in_s is None or found.full_in_s >= 0
