"""How often a job is started again: by cause, with back-off, until nothing of it helps."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import class_actions
from reliability.domain.budget import (
    Allowance,
    Attempt,
    Verdict,
    back_off_s,
    cause_of,
    decide,
)
from reliability.domain.faults import TABLE, Action, Context, FaultClass, Finding, Judgement, judge, policy
from reliability.errors import InvalidInput

ALLOWED = Allowance(restarts=3, first_s=1.0, longest_s=60.0, progress_steps=100, near_steps=10)
SEGV = Attempt(
    number=1,
    told_at="1 Jan 12:00:00",
    cause="software/exit-code",
    code="exit-139",
    signature="exit-139",
    node="n2",
    reached=7,
)


def ends(*changes: dict[str, object]) -> list[Attempt]:
    """Attempts one after another, each as the first with changes."""
    return [replace(SEGV, number=place + 1, **change) for place, change in enumerate(changes)]  # type: ignore[arg-type]


def test_three_restarts_with_doubling_back_off_and_then_no_more() -> None:
    told = [decide(ends(*[{}] * number), ALLOWED, older=False) for number in (1, 2, 3, 4)]
    assert [(each.verdict, each.spent, each.wait_s) for each in told[:3]] == [
        (Verdict.GO_ON, 0, 1.0),
        (Verdict.GO_ON, 1, 2.0),
        (Verdict.GO_ON, 2, 4.0),
    ]
    assert told[3].verdict is Verdict.USED_UP
    assert told[3].reason.count("exit-139 on n2 after step 7") == 4


def test_a_cause_has_a_budget_of_its_own() -> None:
    other = {"cause": "application/exit-code", "code": "exit-1"}
    told = decide(ends({}, {}, {}, other), ALLOWED, older=False)
    assert (told.verdict, told.spent, told.wait_s) == (Verdict.GO_ON, 0, 1.0)


def test_ends_of_one_family_and_class_share_a_budget() -> None:
    assert cause_of("software", TABLE["exit-139"]) == cause_of("software", TABLE["exit-134"]) == "software/exit-code"
    assert cause_of("application", TABLE["exit-1"]) != cause_of("software", TABLE["exit-139"])
    assert cause_of("unknown", TABLE.lookup("never-heard-of")) == "unknown/other"


@pytest.mark.parametrize("proof", [{"saved": 40}, {"reached": 120}])
def test_a_newer_snapshot_or_many_steps_give_the_budget_back_and_the_next_restart_comes_at_once(
    proof: dict[str, object],
) -> None:
    told = decide(ends({"saved": 20}, {"saved": 20}, {"saved": 20}, {"saved": 20, **proof}), ALLOWED, older=False)
    assert (told.verdict, told.spent, told.wait_s) == (Verdict.GO_ON, 0, 0.0)


def test_a_snapshot_saved_again_after_an_older_restore_is_no_progress() -> None:
    history = ends(*[{"saved": 300, "start": (1, 300)}] * 3, {"saved": 280, "start": (1, 200)})
    assert decide(history, ALLOWED, older=False).verdict is Verdict.USED_UP


def test_time_alone_gives_nothing_back() -> None:
    assert decide(ends({}, {}, {}, {"told_at": "1 Jan 2031"}), ALLOWED, older=False).verdict is Verdict.USED_UP


def test_what_is_not_the_programs_doing_neither_counts_nor_waits() -> None:
    lost = {"counts": False, "code": "node-lost"}
    assert decide(ends({}, {}, {}, lost), ALLOWED, older=False).wait_s == 0.0
    assert decide(ends(lost, lost, lost, lost, {}), ALLOWED, older=False).spent == 0


@pytest.mark.parametrize("code", ["exit-126", "exit-127", "exit-2"])
def test_a_program_that_cannot_be_started_is_not_tried_again(code: str) -> None:
    told = decide(ends({"code": code}), ALLOWED, older=False)
    assert (told.verdict, told.restarts) == (Verdict.USED_UP, 0)
    assert "cannot be started" in told.reason


def test_the_same_end_twice_stops_the_loop_and_lists_the_attempts() -> None:
    told = decide(
        ends({"last_step": 776, "start": (1, 700)}, {"last_step": 776, "start": (1, 720)}), ALLOWED, older=True
    )
    assert told.verdict is Verdict.NO_PROGRESS
    assert "2 times after step 776 with exit-139 from 2 different starts" in told.reason
    assert "batch of step 777" in told.reason
    assert "epoch 2 from step 720" in told.reason


def test_the_same_end_close_behind_the_restored_snapshot_tries_an_older_one_once() -> None:
    twice = ends({"last_step": 306, "start": (1, 303)}, {"last_step": 306, "start": (1, 303)})
    assert decide(twice, ALLOWED, older=True).verdict is Verdict.OLDER_SNAPSHOT
    assert decide(twice, ALLOWED, older=False).verdict is Verdict.NO_PROGRESS
    third = [*twice, replace(twice[0], number=3, start=(1, 300))]
    assert decide(third, ALLOWED, older=True).verdict is Verdict.NO_PROGRESS


@pytest.mark.parametrize("change", [{"signature": "exit-139 other"}, {"last_step": 777}, {"last_step": None}])
def test_another_error_another_step_or_an_unknown_one_is_no_repetition(change: dict[str, object]) -> None:
    told = decide(ends({"last_step": 776}, {"last_step": 776, **change}), ALLOWED, older=True)
    assert told.verdict is Verdict.GO_ON


def test_a_rank_that_finished_no_step_of_its_own_repeats_nothing() -> None:
    same = {"last_step": 20, "start": (1, 20)}
    assert decide(ends(same, same), ALLOWED, older=True).verdict is Verdict.GO_ON


_STEPS = st.none() | st.integers(0, 400)
_ENDS = st.builds(
    dict,
    cause=st.sampled_from(["a/x", "b/y"]),
    reached=_STEPS,
    last_step=_STEPS,
    saved=_STEPS,
    start=st.none() | st.tuples(st.just(1), st.integers(0, 400)),
    counts=st.booleans(),
)


@given(st.lists(_ENDS, min_size=1, max_size=12), st.integers(0, 4), st.booleans())
def test_no_history_gets_more_restarts_than_its_budget_and_none_waits_beyond_the_longest(
    changes: list[dict[str, object]], restarts: int, older: bool
) -> None:
    told = decide(ends(*changes), replace(ALLOWED, restarts=restarts), older=older)
    goes_on = told.verdict in (Verdict.GO_ON, Verdict.OLDER_SNAPSHOT)
    assert not (goes_on and changes[-1]["counts"] and told.spent >= restarts)
    assert 0 <= told.wait_s <= ALLOWED.longest_s
    assert goes_on or told.reason


@given(st.integers(0, 10_000))
def test_back_off_never_falls_and_never_overflows(number: int) -> None:
    shorter, longer = (back_off_s(each, first_s=1.0, longest_s=300.0) for each in (number, number + 1))
    assert shorter <= longer <= 300.0


def judged(fault_class: FaultClass, action: Action) -> Judgement:
    return Judgement(fault_class=fault_class, action=action, root=None, reasons=("why",))


def test_a_policy_changes_what_is_done_for_a_class_and_says_so() -> None:
    told = policy.by_policy(
        judged(FaultClass.NETWORK, Action.RESTART_IN_PLACE), {"network": "failover"}, ranks_ended=True
    )
    assert told.action is Action.FAILOVER
    assert "policy for class network is failover; the table says restart in place" in told.reasons[-1]


@pytest.mark.parametrize("action", [Action.OBSERVE, Action.HOLD])
def test_a_policy_starts_nothing_that_the_table_observes_or_holds(action: Action) -> None:
    judgement = judged(FaultClass.APPLICATION, action)
    assert policy.by_policy(judgement, {"application": "restart_in_place"}, ranks_ended=True) is judgement


def test_what_is_only_observed_by_policy_waits_for_a_person_once_a_rank_has_ended() -> None:
    judgement = judged(FaultClass.HARDWARE, Action.FAILOVER)
    for ended, action in ((False, Action.OBSERVE), (True, Action.HOLD)):
        assert policy.by_policy(judgement, {"hardware": "observe"}, ranks_ended=ended).action is action


def of_findings(
    *told: tuple[str, str],
    actions: dict[str, str],
    ended: bool = True,
    unknown: Action = Action.RESTART_IN_PLACE,
) -> tuple[str, str, str]:
    """Return code and node of the root, and the action."""
    findings = [Finding(code=code, node=node, at=order, order=order) for order, (code, node) in enumerate(told)]
    context = Context(class_actions=actions, ranks_ended=ended)
    found = judge(findings, unknown_action=unknown, now=9.0, settle_s=0.0, nodes=4, context=context)
    assert found is not None
    assert found.root is not None
    return found.root.code, found.root.node, found.action


@pytest.mark.parametrize("milder", ["observe", "hold", "restart_in_place"])
def test_a_policy_for_one_class_hides_no_fault_of_another_whatever_came_first(milder: str) -> None:
    for told in permutations([("sxid-20034", "n1"), ("xid-79", "n2"), ("exit-137", "n2")]):
        assert of_findings(*told, actions={"network": milder}) == ("xid-79", "n2", "failover")


@pytest.mark.parametrize("unknown", list(Action))
def test_what_policy_holds_for_a_person_is_not_restarted_for_the_ends_that_it_explains(unknown: Action) -> None:
    for told in permutations([("sxid-20034", "n1"), ("exit-137", "n1"), ("exit-137", "n2"), ("peer-closed", "n3")]):
        held = of_findings(*told, actions={"network": "hold"}, unknown=unknown)
        assert held == ("sxid-20034", "n1", "hold")


def test_what_policy_only_observes_explains_its_consequences_and_hides_no_hang() -> None:
    for told in permutations([("sxid-20034", "n1"), ("peer-closed", "n2")]):
        observed = of_findings(*told, actions={"network": "observe"}, ended=False)
        assert observed == ("sxid-20034", "n1", "observe")
    for told in permutations([("sxid-20034", "n1"), ("hang", "n2")]):
        acted = of_findings(*told, actions={"network": "observe"}, ended=False)
        assert acted == ("hang", "n2", "restart_in_place")


def test_consequences_alone_follow_the_policy_of_their_class() -> None:
    findings = [Finding(code="peer-closed", node="n1", at=0.0, order=0)]
    context = Context(class_actions={"software": "hold"})
    found = judge(findings, unknown_action=Action.OBSERVE, now=9.0, settle_s=0.0, context=context)
    assert found is not None
    assert found.action is Action.HOLD
    assert "policy for class software is hold" in found.reasons[-1]


@pytest.mark.parametrize(
    ("text", "field"),
    [("network", "x"), ("net=hold", "x.net"), ("network=reboot", "x.network"), ("unknown=hold", "x.unknown")],
)
def test_a_policy_that_names_no_class_or_no_action_is_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        class_actions.parse(text, "x")
    assert refused.value.field == field
    assert refused.value.hint


def test_a_policy_is_read_as_it_is_written() -> None:
    assert class_actions.parse(" network=hold, thermal = failover,", "x") == {"network": "hold", "thermal": "failover"}
