"""Standbys: who comes first, who may not be used, and what a validation proves."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.standby import (
    Candidate,
    PairBandwidth,
    Verdict,
    judge_bandwidth,
    judge_digests,
    rank_candidates,
)

MAX_AGE_S = 900.0


def standby(node: str, tier: int = 1, **more: Any) -> Candidate:
    return Candidate(**{"node": node, "tier": tier, "healthy": True, **more})


def fit(node: str, tier: int = 1, **more: Any) -> Candidate:
    return standby(node, tier, **{"validation": Verdict.PASS, "validation_age_s": 10.0, **more})


def order_of(*candidates: Candidate) -> list[str]:
    return [ranked.candidate.node for ranked in rank_candidates(candidates, max_age_s=MAX_AGE_S)]


candidates = st.lists(
    st.builds(
        Candidate,
        node=st.sampled_from([f"s{index}" for index in range(8)]),
        tier=st.integers(1, 3),
        healthy=st.booleans(),
        held_by=st.sampled_from(["", "automation"]),
        occupied_by=st.sampled_from(["", "other-job"]),
        preemptible=st.booleans(),
        runtime_fits=st.booleans(),
        image_present=st.booleans(),
        warm=st.booleans(),
        validation=st.one_of(st.none(), st.sampled_from(Verdict)),
        validation_age_s=st.one_of(st.none(), st.floats(0, 2000)),
    ),
    max_size=8,
    unique_by=lambda candidate: candidate.node,
)


def test_the_best_tier_comes_first_even_when_a_lower_one_is_readier() -> None:
    assert order_of(fit("ready", 2, warm=True, image_present=True), standby("cold", 1)) == ["cold", "ready"]


def test_a_lower_tier_comes_first_when_the_better_one_has_no_node_that_may_be_used() -> None:
    assert order_of(fit("held", 1, held_by="automation"), fit("low", 3)) == ["low", "held"]


def test_within_a_tier_a_free_node_comes_before_one_whose_work_would_be_stopped() -> None:
    busy = fit("busy", occupied_by="other-job", preemptible=True, warm=True)
    free = standby("free")
    assert order_of(busy, free) == ["free", "busy"]
    assert order_of(busy, standby("lower", 2)) == ["busy", "lower"]


def test_then_a_fresh_validation_a_warm_container_a_present_image_and_the_name_decide() -> None:
    assert order_of(standby("a", warm=True), fit("b")) == ["b", "a"]
    assert order_of(fit("a", image_present=True), fit("b", warm=True)) == ["b", "a"]
    assert order_of(fit("a"), fit("b", image_present=True)) == ["b", "a"]
    assert order_of(fit("b"), fit("a")) == ["a", "b"]


def test_a_node_that_crashed_in_an_old_validation_comes_last_of_its_tier() -> None:
    crashed = standby("a", validation=Verdict.CRASH, validation_age_s=5000.0, warm=True)
    assert order_of(crashed, standby("b")) == ["b", "a"]


@pytest.mark.parametrize(
    ("flaw", "told"),
    [
        ({"healthy": False}, "Not healthy"),
        ({"held_by": "ada"}, "Held by ada"),
        ({"runtime_fits": False}, "runtime"),
        ({"occupied_by": "other-job"}, "must not be stopped"),
        ({"validation": Verdict.FAIL, "validation_age_s": 99999.0}, "validation failed"),
        ({"validation": Verdict.TIMEOUT, "validation_age_s": 5.0}, "timeout"),
        ({"validation": Verdict.CRASH, "validation_age_s": 5.0}, "crash"),
    ],
)
def test_a_node_that_may_not_be_used_says_why(flaw: dict[str, Any], told: str) -> None:
    (ranked,) = rank_candidates([fit("s1", **flaw)], max_age_s=MAX_AGE_S)
    assert not ranked.eligible
    assert told in " ".join(ranked.reasons)


def test_a_pass_older_than_the_limit_is_no_fresh_one() -> None:
    new, old = rank_candidates([fit("a", validation_age_s=900.0), fit("b", validation_age_s=900.1)], max_age_s=900.0)
    assert (new.fresh, old.fresh) == (True, False)
    assert "checked again" in " ".join(old.reasons)


def test_a_crash_exactly_as_old_as_the_limit_still_counts() -> None:
    at, beyond = (standby(str(age), validation=Verdict.CRASH, validation_age_s=age) for age in (900.0, 900.1))
    usable, unusable = rank_candidates([at, beyond], max_age_s=900.0)
    assert (usable.candidate, usable.eligible) == (beyond, True)
    assert (unusable.candidate, unusable.eligible) == (at, False)


@given(candidates)
def test_ranking_loses_nobody_and_puts_all_that_may_be_used_first_by_tier(listed: list[Candidate]) -> None:
    ranked = rank_candidates(listed, max_age_s=MAX_AGE_S)
    assert sorted(each.candidate.node for each in ranked) == sorted(each.node for each in listed)
    places = [(not each.eligible, each.candidate.tier) for each in ranked]
    assert places == sorted(places)
    assert all(each.reasons for each in ranked)


@given(candidates)
def test_nobody_unfit_may_ever_be_used(listed: list[Candidate]) -> None:
    for each in rank_candidates(listed, max_age_s=MAX_AGE_S):
        candidate = each.candidate
        if each.eligible:
            assert candidate.healthy
            assert candidate.runtime_fits
            assert not candidate.held_by
            assert candidate.preemptible or not candidate.occupied_by
            assert candidate.validation is not Verdict.FAIL


@given(candidates, st.randoms())
def test_the_ranking_does_not_depend_on_the_order_of_listing(listed: list[Candidate], random: Any) -> None:
    mixed = list(listed)
    random.shuffle(mixed)
    assert rank_candidates(listed, max_age_s=MAX_AGE_S) == rank_candidates(mixed, max_age_s=MAX_AGE_S)


def pair(first: str, second: str, bytes_per_s: float) -> PairBandwidth:
    return PairBandwidth(first=first, second=second, bytes_per_s=bytes_per_s)


def test_a_node_slowed_to_a_tenth_fails_and_an_even_one_passes() -> None:
    reference = [pair("n1", "n2", 1e9), pair("n2", "n1", 1.1e9)]
    slow = [*reference, pair("s1", "n1", 1e8), pair("s1", "n2", 1.1e8)]
    assert judge_bandwidth("s1", slow)[0] is Verdict.FAIL
    even = [*reference, pair("s1", "n1", 9e8), pair("n2", "s1", 8e8)]
    verdict, told = judge_bandwidth("s1", even)
    assert verdict is Verdict.PASS
    assert "MB/s" in told


def test_exactly_a_quarter_still_passes() -> None:
    assert judge_bandwidth("s1", [pair("n1", "n2", 400), pair("s1", "n1", 100)])[0] is Verdict.PASS
    assert judge_bandwidth("s1", [pair("n1", "n2", 400), pair("s1", "n1", 99)])[0] is Verdict.FAIL


def test_a_slow_peer_is_not_blamed_on_the_candidate() -> None:
    """One of its three pairs is slow because the peer is: the median does not follow it."""
    pairs = [pair("n1", "n2", 1e9), pair("s1", "n1", 1e9), pair("s1", "n2", 1e9), pair("s1", "n3", 1e7)]
    assert judge_bandwidth("s1", pairs)[0] is Verdict.PASS


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [pair("n1", "n2", 1e9)],
        [pair("s1", "n1", 1e9)],
        [pair("n1", "n2", 0), pair("s1", "n1", 1e9)],
        [pair("n1", "n2", 1e9), pair("s1", "n1", math.nan)],
        [pair("n1", "n2", math.nan), pair("s1", "n1", 1e9)],
        [pair("n1", "n2", 1e9), pair("s1", "n1", 0)],
    ],
)
def test_what_was_not_measured_is_no_pass(pairs: list[PairBandwidth]) -> None:
    verdict, told = judge_bandwidth("s1", pairs)
    assert verdict is Verdict.FAIL
    assert told


GOOD = ["d"] * 12
FLEET = {"n1": GOOD, "n2": GOOD}


def test_equal_digests_pass() -> None:
    assert judge_digests(GOOD, FLEET)[0] is Verdict.PASS


@pytest.mark.parametrize("position", range(12))
def test_one_wrong_round_of_many_fails(position: int) -> None:
    wrong = [*GOOD]
    wrong[position] = "x"
    verdict, told = judge_digests(wrong, FLEET)
    assert verdict is Verdict.FAIL
    assert f"Round {position + 1} " in told


def test_a_single_broken_node_of_the_fleet_does_not_condemn_a_good_candidate() -> None:
    assert judge_digests(GOOD, {**FLEET, "n3": ["x"] * 12})[0] is Verdict.PASS


def test_a_fleet_without_a_majority_lets_nobody_pass() -> None:
    verdict, told = judge_digests(GOOD, {"n1": GOOD, "n2": ["x"] * 12})
    assert verdict is Verdict.FAIL
    assert "no majority" in told


@pytest.mark.parametrize("rounds", [[], ["d", ""]])
def test_no_answer_is_no_pass(rounds: list[str]) -> None:
    assert judge_digests(rounds, FLEET)[0] is Verdict.FAIL


def test_nodes_that_gave_no_rounds_do_not_vote() -> None:
    verdict, told = judge_digests(GOOD, {"n1": [], "n2": []})
    assert verdict is Verdict.PASS
    assert "no other node answered" in told


def test_alone_a_node_whose_own_rounds_differ_fails() -> None:
    assert judge_digests(["d", "x", "d"], {})[0] is Verdict.FAIL


def test_against_a_single_other_node_a_difference_is_no_pass() -> None:
    assert judge_digests(["x"] * 3, {"n1": ["d"] * 3})[0] is Verdict.FAIL
    verdict, told = judge_digests(["d"] * 3, {"n1": ["d"] * 3})
    assert verdict is Verdict.PASS
    assert "n1" in told


def test_a_degraded_one_comes_after_the_others_of_its_tier_and_an_unknown_one_last_of_all() -> None:
    doubted = [
        Candidate(node="a", tier=1, healthy=True, unknown=True, condition="Check gpu hangs."),
        Candidate(node="b", tier=1, healthy=True, degraded=True, condition="It flaps."),
        Candidate(node="c", tier=1, healthy=True),
        Candidate(node="d", tier=2, healthy=True),
        Candidate(node="e", tier=1, healthy=False, condition="Bad board."),
    ]
    ranked = rank_candidates(doubted, max_age_s=900.0)
    assert [each.candidate.node for each in ranked] == ["c", "b", "d", "a", "e"]
    told = {each.candidate.node: " ".join(each.reasons) for each in ranked}
    assert "It flaps." in told["b"]
    assert "Check gpu hangs." in told["a"]
    assert told["e"] == "Not healthy: Bad board."
