"""When does a job hang, who is suspected, who lags, what is slower than it was: the rules by themselves."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.progress import (
    Computed,
    Output,
    Pace,
    RankView,
    Rule,
    SpeedRule,
    StragglerRule,
    find_hang,
    find_quiet,
    find_stragglers,
    judge_speed,
    spread,
    standing,
    step_limit,
)
from reliability.domain.progress.hang import ranges

RULE = Rule()
PACE = Pace(median_s=2.0, mad_s=0.05, longest_s=2.4, timed=300)
EIGHT = tuple(
    RankView(rank=rank, node=f"n{rank // 4 + 1}", step=300, still_s=35.0, phase="training", pace=PACE)
    for rank in range(8)
)


def but(rank: int, ranks: tuple[RankView, ...] = EIGHT, **values: object) -> tuple[RankView, ...]:
    """Return the ranks with one of them changed."""
    return tuple(replace(each, **values) if each.rank == rank else each for each in ranks)


@pytest.mark.parametrize(
    ("pace", "limit_s", "why"),
    [
        (PACE, 30.0, "the least of 30 s"),
        (replace(PACE, median_s=105.0), 525.0, "5 times the median step of 105.00 s"),
        (replace(PACE, mad_s=3.0), 2.0 + 20 * 1.4826 * 3.0, "20 times its spread 4.45 s"),
        (replace(PACE, longest_s=80.0), 120.0, "1.5 times the longest of late, 80.0 s"),
        (replace(PACE, timed=3), 120.0, "120 s for the first 10 steps"),
        (None, 120.0, "120 s for the first 10 steps"),
    ],
)
def test_the_limit_of_a_step_is_the_largest_of_a_few_and_says_which(pace: Pace, limit_s: float, why: str) -> None:
    limit = step_limit(pace, RULE)
    assert limit.seconds == pytest.approx(limit_s)
    assert why in str(limit)


def test_a_job_hangs_when_all_ranks_that_are_furthest_behind_are_over_their_limits() -> None:
    assert find_hang(EIGHT, RULE) is not None
    assert find_hang(but(3, still_s=29.9), RULE) is None
    assert find_hang(but(3, still_s=29.9, step=301), RULE) is not None, "nobody waits for one that is ahead"
    assert find_hang((), RULE) is None


def test_a_rank_that_stands_still_while_the_others_go_on_without_it_hangs_by_itself() -> None:
    ahead = tuple(replace(each, step=900, still_s=0.1) for each in EIGHT)
    hang = find_hang(but(2, ahead, step=300, still_s=31.0), RULE)
    assert hang is not None
    assert (hang.suspicion.ranks, hang.suspicion.node) == ((2,), "n1")
    assert "Rank 2 finished step 300, others up to step 900." in hang.evidence


def test_an_announced_phase_excuses_all_who_wait_for_it_and_becomes_a_hang_at_its_own_limit() -> None:
    waiting = tuple(replace(each, still_s=61.0) for each in EIGHT)
    in_time = but(5, waiting, phase="eval", phase_limit_s=60.0, still_s=59.9)
    assert find_hang(in_time, RULE) is None
    late = find_hang(but(5, waiting, phase="eval", phase_limit_s=60.0, still_s=60.0), RULE)
    assert late is not None
    assert (late.suspicion.ranks, late.suspicion.node) == ((5,), "n2")
    assert late.standing.limit.seconds == 60.0
    assert "Rank 5 is in eval, the others in training." in late.evidence
    assert "Ranks 0-4, 6-7: step 300, training for 61.0 s." in late.evidence


def test_who_did_not_come_into_the_evaluation_of_all_others_is_the_odd_one_too() -> None:
    evaluating = tuple(replace(each, phase="eval", phase_limit_s=30.0) for each in EIGHT)
    hang = find_hang(but(1, evaluating, phase="training", phase_limit_s=None), RULE)
    assert hang is not None
    assert hang.suspicion.ranks == (1,)


@pytest.mark.parametrize("state", ["stopped", "frozen", "uninterruptible"])
def test_a_process_that_cannot_go_on_is_suspected_before_all_else(state: str) -> None:
    ranks = but(6, but(1, phase="eval", phase_limit_s=10.0), state=state)
    hang = find_hang(ranks, RULE, newcomers=("n1",))
    assert hang is not None
    assert hang.suspicion.ranks == (6,)
    assert "its process" in hang.evidence


def test_who_has_not_come_to_the_collective_is_suspected_where_programs_mark_them() -> None:
    waiting = tuple(replace(each, waits=each.rank != 4) for each in EIGHT)
    hang = find_hang(waiting, RULE)
    assert hang is not None
    assert hang.suspicion.ranks == (4,)


def test_the_last_to_move_is_suspected_only_by_a_clear_margin() -> None:
    assert find_hang(but(7, still_s=33.5), RULE).suspicion.ranks == ()
    last = find_hang(but(7, still_s=32.0), RULE)
    assert last.suspicion.ranks == (7,)
    assert "the last to move, by 3.0 s" in last.evidence


def test_a_node_that_came_a_short_while_ago_is_suspected_first() -> None:
    hang = find_hang(but(1, phase="eval", phase_limit_s=10.0), RULE, newcomers=("n2",))
    assert hang.suspicion.newcomer
    assert hang.suspicion.node == "n2"
    everywhere = find_hang(EIGHT, RULE, newcomers=("n1", "n2"))
    assert not everywhere.suspicion.newcomer, "where all are new, nobody is newer"


def test_nothing_is_judged_while_one_rank_is_not_heard_of() -> None:
    assert find_hang(but(0, still_s=None), RULE) is None
    assert standing(but(0, still_s=None), RULE) is None


def test_what_is_shown_is_the_limit_that_is_reached_last() -> None:
    found = standing(but(5, phase="eval", phase_limit_s=60.0, still_s=20.0), RULE)
    assert (found.decisive.rank, found.still_s, found.limit.seconds, found.over) == (5, 20.0, 60.0, False)


def test_ten_thousand_ranks_are_told_in_a_few_lines() -> None:
    many = tuple(replace(EIGHT[0], rank=rank, node=f"n{rank // 8}", step=300 + (rank % 3)) for rank in range(10_000))
    assert len(find_hang(many, RULE).evidence) < 200_000
    alike = tuple(replace(EIGHT[0], rank=rank, node=f"n{rank // 8}") for rank in range(10_000))
    assert len(find_hang(but(77, alike, phase="eval", phase_limit_s=1.0), RULE).evidence) < 600


def test_runs_of_numbers_are_drawn_together() -> None:
    assert ranges([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"


@given(
    st.lists(
        st.builds(
            RankView,
            rank=st.integers(0, 50),
            node=st.sampled_from(["a", "b", "c"]),
            step=st.none() | st.integers(0, 3),
            still_s=st.none() | st.floats(0, 1e6),
            phase=st.sampled_from(["", "training", "starting", "eval", "snapshot"]),
            phase_limit_s=st.none() | st.floats(0, 1e5),
            pace=st.none() | st.just(PACE),
            waits=st.booleans(),
            state=st.sampled_from(["", "stopped"]),
        ),
        unique_by=lambda each: each.rank,
        max_size=9,
    ),
    st.floats(0, 1e6),
)
def test_a_hang_stays_one_while_nothing_moves_and_whoever_moves_ahead_is_never_suspected(
    ranks: list[RankView], more_s: float
) -> None:
    hang = find_hang(ranks, RULE)
    later = [replace(each, still_s=None if each.still_s is None else each.still_s + more_s) for each in ranks]
    again = find_hang(later, RULE)
    if hang is None:
        return
    assert again is not None
    assert set(hang.suspicion.ranks) <= {each.rank for each in ranks}
    if any(each.state for each in ranks):
        return
    behind = {each.rank for each in hang.standing.behind}
    assert set(hang.suspicion.ranks) <= behind or len(ranks) == 1


def compute(slow: dict[int, float] | None = None, ranks: int = 8, role: str = "") -> dict[int, Computed]:
    seconds = {rank: 1.0 + 0.002 * (rank % 4) for rank in range(ranks)} | (slow or {})
    return {rank: Computed(each, role) for rank, each in seconds.items()}


def test_a_straggler_lags_in_most_windows_by_time_by_share_and_by_spread() -> None:
    rule = StragglerRule()
    assert not find_stragglers([compute({3: 1.3})] * 7 + [compute()] * 3, rule), "too few windows"
    assert not find_stragglers([compute({3: 1.3})] * 9, rule), "not enough windows yet"
    assert not find_stragglers([compute({3: 1.09})] * 10, rule), "less than a tenth"
    quick = [{rank: Computed(each.seconds / 1000) for rank, each in compute({3: 1.3}).items()}] * 10
    assert not find_stragglers(quick, rule), "less than ten milliseconds"
    noisy = [compute({rank: 1.0 + 0.1 * rank for rank in range(8)})] * 10
    assert not find_stragglers(noisy, rule), "within the spread of the others"
    (found,) = find_stragglers([compute({3: 1.3})] * 8 + [compute()] + [compute({3: 1.3})], rule)
    assert (found.rank, found.lagged, found.seconds) == (3, 9, 1.3)
    assert "29 % more" in found.evidence or "30 % more" in found.evidence


def test_ranks_are_compared_within_their_role_and_two_of_a_role_are_too_few() -> None:
    rule = StragglerRule()
    first, last = compute(ranks=4, role="stage-0"), compute({4: 3.0, 5: 3.0, 6: 3.0, 7: 3.01}, role="stage-1")
    window = first | {rank: each for rank, each in last.items() if rank >= 4}
    assert not find_stragglers([window] * 10, rule)
    assert not spread(compute({1: 9.0}, ranks=2), rule)


def test_a_drop_of_speed_lasts_and_is_compared_with_the_jobs_own_history() -> None:
    rule = SpeedRule()
    usual = [1.0, 1.02, 0.98, 1.01] * 10
    assert judge_speed([9.0, 5.0, *usual, *usual[:10]], rule) is None, "the first windows warm up"
    assert judge_speed([9.0, 5.0, *usual, *([1.15] * 10)], rule) is None, "less than a fifth"
    assert judge_speed([9.0, 5.0, *usual, *([1.5] * 7), *([1.0] * 3)], rule) is None, "it has to last"
    assert judge_speed([1.0] * 12 + [1.5] * 10, rule) is None, "too little to compare with"
    found = judge_speed([9.0, 5.0, *usual, *([1.5] * 8), *([1.0] * 2)], rule)
    assert (found.now_s, found.slow) == (1.5, 8)
    assert found.usual_s == pytest.approx(1.0, abs=0.02)


def test_a_quiet_program_is_one_without_output_and_without_snapshots_for_longer_than_it_ever_was() -> None:
    outputs = [Output(rank=0, quiet_s=700.0, longest_s=20.0), Output(rank=1, quiet_s=900.0, longest_s=100.0)]
    assert find_quiet(outputs, snapshot_s=None, rule=RULE).quiet_s == 700.0
    assert find_quiet(outputs, snapshot_s=100.0, rule=RULE) is None, "it still saves"
    assert find_quiet([*outputs, Output(rank=2, quiet_s=None)], snapshot_s=None, rule=RULE) is None
    slow = [replace(outputs[0], longest_s=300.0), outputs[1]]
    assert find_quiet(slow, snapshot_s=None, rule=RULE) is None, "it was as quiet before"
    assert find_quiet([], snapshot_s=None, rule=RULE) is None
