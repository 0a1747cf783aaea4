"""Counters are what they rose by, conditions are told once and once more when they are over, and garbage is no past."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.agent.collectors.checks.past import MOST_KEPT, Past
from reliability.agent.collectors.checks.sheet import MOST_TOLD, Sheet, Trouble, bounded
from reliability.agent.collectors.checks.tree import MOST_NUMBER, Tree, number
from reliability.domain.faults import TABLE
from reliability.domain.faults.families import checks

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def _after(kept: object, *, boot: str = "a", at: float = 1.0) -> Past:
    return Past(json.loads(json.dumps(kept)), boot=boot, at=at)


def _rises(values: list[int | None], **how: bool) -> list[int]:
    kept: object = {}
    found = []
    for value in values:
        past = _after(kept)
        found.append(past.rise("errors", value, **how))
        kept = past.kept()
    return found


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        ([7, 7, 9], [0, 0, 2]),
        ([7, None, 9], [0, 0, 2]),
        ([7, 0, 7, 8], [0, 0, 0, 1]),
        ([7, 2, 3, 4], [0, 0, 3, 1]),
        ([7, -1, 8], [0, 0, 1]),
    ],
    ids=["first look", "not read for once", "misread once", "begun anew", "negative"],
)
def test_a_counter_is_what_it_rose_by(values: list[int | None], rises: list[int]) -> None:
    assert _rises(values) == rises


def test_after_a_start_of_the_machine_a_counter_begins_anew() -> None:
    def after_start(**how: bool) -> int:
        first = _after({})
        first.rise("errors", 5, **how)
        return _after(first.kept(), boot="b").rise("errors", 8, **how)

    assert after_start() == 0
    assert after_start(from_zero=True) == 8
    assert after_start(lasting=True) == 3


def test_a_sum_over_a_window_forgets_what_is_old_and_merges_what_is_much() -> None:
    kept: object = {}
    for second in range(300):
        past = _after(kept, at=float(second))
        total = past.within("errors", 1, 1000.0)
        kept = past.kept()
    assert total == 300
    assert len(past.kept()["windows"]["errors"]) <= 64
    assert _after(kept, at=5000.0).within("errors", 0, 1000.0) == 0


def test_the_highest_value_is_believed_when_it_was_seen_twice_in_a_row() -> None:
    kept: object = {}
    seen = []
    for value in (100.0, 400.0, 100.0, 400.0, 400.0, 100.0):
        past = _after(kept)
        seen.append(past.highest("rate", value))
        kept = past.kept()
    assert seen == [None, 100.0, 100.0, 100.0, 400.0, 400.0]


@given(kept=JSON | st.fixed_dictionaries({"boot": st.just("a"), "counters": JSON, "told": JSON, "windows": JSON}))
@settings(max_examples=60, deadline=None)
def test_whatever_stands_in_place_of_a_past_breaks_nothing_and_tells_no_rise(kept: object) -> None:
    past = Past(kept, boot="a", at=5.0)
    past.rise("errors", 3)
    past.within("errors", 1, 60.0)
    past.highest("rate", 3.0)
    past.held_s("slow", True)
    sheet = Sheet(past)
    sheet.stands(Trouble(code="memory-low", place="here", evidence="Low."))
    again = json.loads(json.dumps(sheet.outcome("Well.").state))
    assert Past(again, boot="a", at=6.0).rise("errors", 3) == 0


def test_what_is_kept_is_bounded_and_what_was_not_seen_for_once_is_kept() -> None:
    first = _after({})
    for place in range(MOST_KEPT + 50):
        first.rise(f"errors {place}", 1)
    second = _after(first.kept())
    second.rise("fresh", 1)
    kept = second.kept()["counters"]
    assert len(kept) == MOST_KEPT
    assert kept["errors 0"] == kept["fresh"] == 1


def test_a_condition_is_told_once_and_once_more_when_it_is_over() -> None:
    low = Trouble(code="memory-low", place="memory", evidence="Low.", fields={"device": "m"})
    kept: object = {}
    told = []
    for standing in (True, True, False, False, True):
        sheet = Sheet(_after(kept))
        if standing:
            sheet.stands(low)
        outcome = sheet.outcome("Well.")
        kept = outcome.state
        told.append([(each.code, each.fields) for each in outcome.findings])
        assert outcome.ok is not standing
    begun, over = ("memory-low", {"device": "m"}), ("memory-low-over", {"device": "m"})
    assert told == [[begun], [], [over], [], [begun]]


def test_nothing_counts_as_over_while_it_cannot_be_told() -> None:
    sheet = Sheet(_after({}))
    sheet.stands(Trouble(code="memory-low", place="memory", evidence="Low."))
    unknown = Sheet(_after(sheet.outcome("").state))
    unknown.unknown("It cannot be read.")
    outcome = unknown.outcome("")
    assert (outcome.ok, outcome.findings) == (None, ())
    assert [each.code for each in Sheet(_after(outcome.state)).outcome("Well.").findings] == ["memory-low-over"]


def test_conditions_that_one_look_cannot_tell_are_told_by_the_next() -> None:
    kept: object = {}
    told: list[int] = []
    for _ in range(3):
        sheet = Sheet(_after(kept))
        for place in range(MOST_TOLD + 10):
            sheet.stands(Trouble(code="memory-low", place=str(place), evidence=f"Low at place {place}."))
        outcome = sheet.outcome("")
        kept = outcome.state
        told.append(len(outcome.findings))
    assert told == [MOST_TOLD, 10, 0]
    assert len(outcome.reason) <= 400
    assert "more." in outcome.reason


def test_what_stands_silently_is_never_told_neither_that_it_is_over() -> None:
    sheet = Sheet(_after({}))
    sheet.stands(Trouble(code="gpu-remap-failed", place="g", evidence="Bad.", silent=True))
    first = sheet.outcome("")
    assert (first.ok, first.findings) == (False, ())
    assert Sheet(_after(first.state)).outcome("Well.").findings == ()


@given(st.text(max_size=24) | st.integers().map(str))
@settings(max_examples=80, deadline=None)
def test_a_number_is_one_of_64_bits_or_none(text: str) -> None:
    value = number(text)
    assert value is None or abs(value) <= MOST_NUMBER


def test_a_tree_reads_only_regular_files_and_raises_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "name with space").write_text("42\n")
    (tmp_path / "huge").write_text("9" * 40)
    (tmp_path / "raw").write_bytes(b"\xff\x00\xfe")
    tree = Tree(tmp_path)
    assert tree.number("name with space") == 42
    assert [tree.number(name) for name in ("pipe", "loop", "huge", "raw", "missing", "bad\0name")] == [None] * 6
    assert tree.names("loop") == tree.names("missing") == []
    assert tree.absent("missing")
    assert not tree.absent("loop")


def test_measured_values_are_such_that_they_can_be_sent() -> None:
    sent = bounded({"a": 2**64, "b": float("inf"), "c": "\ud800x", "d": [1] * 100, "e": object(), "f": 2**63 - 1})
    assert sent["a"] is sent["b"] is sent["e"] is None
    assert sent["f"] == 2**63 - 1
    assert len(sent["d"]) == 64
    json.dumps(sent).encode()
    assert sent["c"].encode()


def test_every_code_that_lasts_has_one_for_its_end_that_does_nothing() -> None:
    ends = {row.code: row for row in checks.ROWS if row.code.endswith("-over")}
    assert ends
    for code, row in ends.items():
        assert row.clears == code.removesuffix("-over")
        assert row.clears in TABLE
        assert row.action == "observe"
        assert row.fault_class == TABLE[row.clears].fault_class or row.clears in {"probe-hang"}
