"""The failover table: it ends, it speaks, it never leaves a final state, and the documentation shows it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.failover import OPEN, RUNNING, TABLE, TERMINAL, Event, State, mermaid, row_for
from reliability.errors import IllegalTransition

METHOD = Path(__file__).parents[2] / "docs" / "method.md"
PROBLEMS = (Event.SUPERSEDED, Event.CANCELLED, Event.GAVE_UP)


def reachable(start: State, without: tuple[Event, ...] = ()) -> set[State]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for row in TABLE:
            if row.source is here and row.event not in without and row.target not in found:
                found.add(row.target)
                todo.append(row.target)
    return found


def events_of(state: State) -> list[Event]:
    return [row.event for row in TABLE if row.source is state]


def test_every_state_is_open_or_final_and_not_both() -> None:
    assert set(OPEN) | set(TERMINAL) == set(State)
    assert not set(OPEN) & set(TERMINAL)
    assert set(RUNNING) == set(OPEN) - {State.AWAITING_APPROVAL}


def test_every_state_is_reached_from_the_first() -> None:
    assert reachable(State.AWAITING_APPROVAL) == set(State)


@pytest.mark.parametrize("state", OPEN)
def test_every_open_state_leads_to_completion_without_giving_up(state: State) -> None:
    assert State.COMPLETED in reachable(state, without=PROBLEMS)


@pytest.mark.parametrize("state", OPEN)
def test_every_open_state_can_end_at_once(state: State) -> None:
    assert row_for(state, Event.GAVE_UP).target is State.FAILED
    assert row_for(state, Event.CANCELLED).target is State.CANCELLED
    assert row_for(state, Event.SUPERSEDED).target is State.SUPERSEDED


@pytest.mark.parametrize("state", TERMINAL)
@pytest.mark.parametrize("event", list(Event))
def test_nothing_leaves_a_final_state(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition, match=str(state)):
        row_for(state, event)


def test_no_state_has_two_rows_for_one_event() -> None:
    pairs = [(row.source, row.event) for row in TABLE]
    assert len(pairs) == len(set(pairs))


def test_every_row_has_a_sentence_for_people_and_every_event_a_row() -> None:
    assert all(row.sentence.endswith(".") and len(row.sentence) > 20 for row in TABLE)
    assert {row.event for row in TABLE} == set(Event)


def test_no_standby_is_prepared_before_the_old_attempt_is_fenced_or_its_lease_ran_out() -> None:
    """Two writers are impossible by the table: every way to a new attempt passes one of these events."""
    barrier = (Event.FENCED, Event.LEASE_RAN_OUT)
    unfenced = reachable(State.AWAITING_APPROVAL, without=barrier)
    assert not unfenced & {State.VALIDATING, State.RESTORING, State.STARTING, State.VERIFYING, State.COMPLETED}


def test_nothing_happens_without_approval() -> None:
    untouched = reachable(State.AWAITING_APPROVAL, without=(Event.APPROVED,))
    assert not untouched & set(RUNNING)


def test_only_a_verified_first_step_completes_a_recovery() -> None:
    assert [row.event for row in TABLE if row.target is State.COMPLETED] == [Event.VERIFIED]


@given(st.data())
def test_whatever_happens_every_prefix_of_a_recovery_can_still_complete(data: st.DataObject) -> None:
    """A recovery that is interrupted after any steps, with any trouble on the way, can be driven on to the end."""
    state = State.AWAITING_APPROVAL
    for _ in range(data.draw(st.integers(0, 30))):
        state = row_for(state, data.draw(st.sampled_from(events_of(state)))).target
        if state in TERMINAL:
            return
    good = {Event.APPROVED, Event.FENCED, Event.STANDBY_FOUND, Event.STANDBY_PASSED}
    good |= {Event.RESTORED, Event.STARTED, Event.VERIFIED}
    for _ in OPEN:
        if state is State.COMPLETED:
            break
        (event,) = [event for event in events_of(state) if event in good]
        state = row_for(state, event).target
    assert state is State.COMPLETED


def test_the_drawing_in_the_documentation_is_the_tables_own() -> None:
    drawings = re.findall(r"```mermaid\n(.*?)\n```", METHOD.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert drawings == [mermaid()], "Put the output of reliability.domain.failover.mermaid() into docs/method.md."


def test_the_documentation_has_a_heading_for_every_statement_of_the_method() -> None:
    headings = re.findall(r"^### (M\d+) ", METHOD.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == [f"M{number}" for number in range(1, 11)]


def test_every_place_in_the_code_that_the_documentation_names_exists() -> None:
    root = METHOD.parent.parent
    named = re.findall(r"`((?:reliability|examples)/[\w/.]*)`", METHOD.read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (root / path).exists()] == []


def test_the_documentation_says_what_is_true_in_every_state() -> None:
    described = set(re.findall(r"^\| (`.*?`) \|", METHOD.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {name for cell in described for name in re.findall(r"`(\w+)`", cell)} == {str(state) for state in State}
