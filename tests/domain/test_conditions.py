"""What lasts explains later why training stopped; what has to stand for a while first is decided on by itself."""

import pytest

from reliability.domain.faults import TABLE, Action, Context, FaultCode, Finding, Judgement, Maintenance, awaited, judge
from reliability.domain.faults.weighing import awaits

NOW = 10_000.0
LATER = NOW + 3600.0
ENDS = {row.clears: row.code for row in TABLE.values() if row.clears}
LASTING = [row for row in TABLE.values() if row.standing_action and row.code in ENDS]
AWAITED = [row for row in TABLE.values() if awaits(row)]


def seen(code: str, node: str, order: int, at: float = NOW, device: str = "a") -> Finding:
    return Finding(code=code, node=node, order=order, at=at, fields={"device": device, "port": 1})


def stopped(*conditions: Finding, maintenance: tuple[Maintenance, ...] = ()) -> Judgement:
    """Return what it comes to that only a consequence is seen, an hour after these conditions."""
    judgement = judge(
        [seen("peer-closed", "n1", 9, LATER)],
        unknown_action=Action.RESTART_IN_PLACE,
        now=LATER + 9,
        settle_s=0.0,
        context=Context(conditions=conditions, maintenance=maintenance),
    )
    assert judgement is not None
    return judgement


@pytest.mark.parametrize("row", LASTING, ids=lambda row: row.code)
def test_what_an_earlier_attempt_left_standing_explains_why_training_stopped(row: FaultCode) -> None:
    before = seen(row.code, "n2", 1)
    assert (stopped(before).action, stopped(before).root) == (row.standing_action, before)
    assert stopped(before, seen(ENDS[row.code], "n2", 2, NOW + 60)).action is Action.RESTART_IN_PLACE
    assert stopped(before, seen(ENDS[row.code], "n2", 2, NOW + 60, device="b")).action is row.standing_action


@pytest.mark.parametrize("row", LASTING, ids=lambda row: row.code)
def test_what_stands_as_planned_explains_nothing(row: FaultCode) -> None:
    planned = Maintenance(node="n2", start=NOW - 1, end=NOW + 1)
    assert stopped(seen(row.code, "n2", 1), maintenance=(planned,)).action is Action.RESTART_IN_PLACE


@pytest.mark.parametrize("row", AWAITED, ids=lambda row: row.code)
def test_what_has_to_stand_for_a_while_is_awaited_until_it_is_due_or_over(row: FaultCode) -> None:
    one, other = seen(row.code, "n2", 1), seen("exit-1", "n1", 2)
    assert awaited([one, other], TABLE, now=NOW + 1) == {1}
    assert awaited([one, other], TABLE, now=NOW + row.debounce_s) == frozenset()
    if row.code in ENDS:
        assert awaited([one, seen(ENDS[row.code], "n2", 3)], TABLE, now=NOW + 1) == frozenset()
