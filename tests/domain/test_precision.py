"""Which mode is in force, how precise decisions were, and what happened next says of them."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.aftermath import AWAY_S, OF_A_NODE, OF_A_RESTART, UNHARMED_S, Aftermath, Decided, judged
from reliability.domain.failover import Kind
from reliability.domain.faults import Action
from reliability.domain.modes import Mode, Need, Reach, bounded, most_specific
from reliability.domain.policy import Approval
from reliability.domain.precision import Counts, Verdict, shortfall, wilson_lower
from reliability.errors import InvalidInput


@dataclass(frozen=True)
class Rule:
    reach: str
    name: str = ""
    group: str = ""


ALL, ALL_RACK = Rule(Reach.ALL), Rule(Reach.ALL, group="rack-1")
FAMILY, FAMILY_RACK = Rule(Reach.FAMILY, "nvidia-xid"), Rule(Reach.FAMILY, "nvidia-xid", "rack-1")
CODE, CODE_RACK = Rule(Reach.CODE, "xid-79"), Rule(Reach.CODE, "xid-79", "rack-1")
ORDER = [CODE_RACK, CODE, FAMILY_RACK, FAMILY, ALL_RACK, ALL]


@pytest.mark.parametrize("best", range(len(ORDER)))
def test_the_most_specific_rule_decides_whatever_the_order_they_come_in(best: int) -> None:
    for rules in (ORDER[best:], ORDER[best:][::-1]):
        assert most_specific(rules, code="xid-79", family="nvidia-xid", group="rack-1") == ORDER[best]


def test_a_rule_for_another_code_family_or_failure_domain_decides_nothing() -> None:
    others = [Rule(Reach.CODE, "xid-13"), Rule(Reach.FAMILY, "mlx5"), Rule(Reach.CODE, "xid-79", "rack-2")]
    assert most_specific(others, code="xid-79", family="nvidia-xid", group="rack-1") is None
    assert most_specific([CODE_RACK], code="xid-79", family="nvidia-xid", group="") is None
    assert most_specific([Rule(Reach.CODE), Rule(Reach.FAMILY)], code="", family="", group="") is None


def test_a_jobs_own_approval_is_the_upper_bound_and_only_failovers_ask_for_it() -> None:
    for mode, kind, approval in product(Mode, [*Kind, None], Approval):
        found = bounded(mode, kind=kind, approval=approval)
        assert list(Mode).index(found) <= list(Mode).index(mode)
        if kind is Kind.FAILOVER and approval is Approval.MANUAL:
            assert found is not Mode.AUTOMATIC
        else:
            assert found is mode


@pytest.mark.parametrize(
    ("right", "total", "lower"), [(0, 0, 0.0), (0, 10, 0.0), (10, 10, 0.7225), (19, 20, 0.7639), (95, 100, 0.8882)]
)
def test_the_lower_bound_is_the_published_wilson_interval(right: int, total: int, lower: float) -> None:
    assert wilson_lower(right, total) == pytest.approx(lower, abs=5e-4)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_lower_bound_lies_below_the_share_and_rises_with_every_right_decision(right: int, wrong: int) -> None:
    counts = Counts(right=right, wrong=wrong)
    if counts.precision is None or counts.lower_bound is None:
        assert right + wrong == 0
        return
    assert 0 <= counts.lower_bound <= counts.precision <= 1
    assert wilson_lower(right + 1, right + wrong + 1) >= counts.lower_bound


def test_unclear_and_missing_verdicts_count_neither_way() -> None:
    counts = Counts(right=3, wrong=1, unclear=7, missing=9)
    assert (counts.precision, counts.decided, counts.total) == (0.75, 4, 20)
    assert Counts(unclear=5).precision is None


def test_what_is_missing_for_automatic_action_is_said_in_numbers() -> None:
    need = Need(precision=0.9, decisions=10)
    assert shortfall(Counts(right=9), need) == "9 of 10 decisions have a verdict of right or wrong."
    assert "80.0%" in shortfall(Counts(right=8, wrong=2), need)
    assert shortfall(Counts(right=9, wrong=1), need) == ""


@pytest.mark.parametrize(
    "wrong", [{"precision": 0.49}, {"precision": 1.01}, {"decisions": 0}, {"precision": float("nan")}]
)
def test_evidence_that_could_never_be_met_or_would_unlock_anything_is_refused(wrong: dict[str, float]) -> None:
    values = {"precision": 0.9, "decisions": 10, **wrong}
    with pytest.raises(InvalidInput):
        Need(precision=values["precision"], decisions=int(values["decisions"]))


def decided(action: Action, **values: object) -> Decided:
    known = {"code": "xid-79", "mode": Mode.AUTOMATIC, "at": 0.0, "carried_out": True}
    return Decided(action=action, **(known | values))  # type: ignore[arg-type]


MOVE, RESTART, HOLD = Action.FAILOVER, Action.RESTART_IN_PLACE, Action.HOLD
SHADOW = {"mode": Mode.SHADOW, "carried_out": False}
CASES = {
    "back-by-itself": (decided(MOVE, code="node-lost"), Aftermath(recovered_by_itself=True)),
    "stayed-away": (decided(MOVE, code="node-lost"), Aftermath(away_s=AWAY_S)),
    "failed-check": (decided(MOVE), Aftermath(failed_check="sdc", same_elsewhere="incident 9")),
    "hardware-again": (decided(HOLD, of_job=False), Aftermath(hardware_again="incident 9")),
    "set-aside": (decided(MOVE), Aftermath(set_aside="quarantine 3")),
    "fault-of-the-job": (decided(MOVE), Aftermath(same_elsewhere="incident 9 on s1", passed_checks=3)),
    "unharmed": (decided(MOVE, **SHADOW), Aftermath(unharmed_s=UNHARMED_S)),
    "had-to-move": (decided(RESTART), Aftermath(moved="failover 4", moved_at=5.0, proven_at=6.0)),
    "same-again": (decided(RESTART), Aftermath(same_again="incident 9", same_again_at=5.0)),
    "proven-progress": (decided(RESTART), Aftermath(proven_at=5.0, same_again="incident 9", same_again_at=6.0)),
    "went-on-without": (decided(RESTART, **SHADOW), Aftermath(went_on_at=5.0)),
}


def test_every_rule_about_what_happened_next_has_a_case_here() -> None:
    assert set(CASES) == {name for name, _, _ in (*OF_A_NODE, *OF_A_RESTART)}


@pytest.mark.parametrize("name", CASES)
def test_what_happened_next_gives_the_verdict_of_its_rule(name: str) -> None:
    told = judged(*CASES[name])
    assert told is not None
    verdict = {rule: verdict for rule, verdict, _ in (*OF_A_NODE, *OF_A_RESTART)}[name]
    assert (told.rule, told.verdict) == (name, verdict)
    assert told.reason.endswith(".")


@pytest.mark.parametrize(
    ("what", "after"),
    [
        (decided(MOVE), Aftermath()),
        (decided(MOVE), Aftermath(same_elsewhere="incident 9", passed_checks=2)),
        (decided(MOVE), Aftermath(unharmed_s=UNHARMED_S)),
        (decided(MOVE), Aftermath(away_s=AWAY_S)),
        (decided(MOVE, **SHADOW), Aftermath(unharmed_s=UNHARMED_S - 1)),
        (decided(RESTART, **SHADOW), Aftermath(proven_at=5.0)),
        (decided(RESTART), Aftermath(went_on_at=5.0)),
        (decided(HOLD), Aftermath(hardware_again="incident 9", failed_check="sdc")),
    ],
)
def test_where_no_rule_speaks_a_person_decides(what: Decided, after: Aftermath) -> None:
    assert judged(what, after) is None


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_restart_is_never_right_once_the_same_fault_came_before_the_proof(again: float, proven: float) -> None:
    told = judged(decided(RESTART), Aftermath(same_again="incident 9", same_again_at=again, proven_at=proven))
    assert told is not None
    assert told.verdict is (Verdict.WRONG if again < proven else Verdict.RIGHT)
