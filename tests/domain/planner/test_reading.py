"""What people and programs write is read, or refused at its field with a sentence that says what would be right."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.domain.planner.durations import seconds, spoken
from reliability.domain.planner.reading import ALIASES, FIELDS, filled, read, told, unused
from reliability.errors import InvalidInput

SOUND: dict[str, object] = {"save_stall": "30s", "mtbf": "10h", "recovery": "10m", "target": "0.93"}


def refused(**changes: object) -> dict[str, str]:
    """Read sound values with some changed; return the sentences by field."""
    request, errors = read(SOUND | changes)
    assert (request is None) is bool(errors)
    assert all(error.hint for error in errors)
    return {error.field: told(error) for error in errors}


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("30", 30),
        ("30s", 30),
        (" 30 s ", 30),
        ("5m", 300),
        ("5 min", 300),
        ("7.9h", 28_440),
        ("12d", 1_036_800),
        ("1h30m", 5400),
        ("1 h 30 min", 5400),
        ("250ms", 0.25),
        ("2 weeks", 1_209_600),
        ("1e3", 1000),
        (".5s", 0.5),
        (0, 0),
        (12.5, 12.5),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_its_unit(text: object, expected_s: float) -> None:
    assert seconds(text, "drain") == pytest.approx(expected_s)


@pytest.mark.parametrize(
    "value",
    ["-5s", "-0.1", "nan", "inf", "-inf", "1e400", "1e400s", "", "soon", "5 moons", "1h 30", "1_0", "٣s", "5s5", "0x10",
     "1e30d", True, [5], {"s": 5}, b"5", math.nan, math.inf, -1, 10**400, "9" * 5000, "1e-12s", "\ud800", "\x00"],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refusal:
        seconds(value, "drain")
    assert refusal.value.field == "drain"
    assert refusal.value.hint
    assert len(told(refusal.value)) < 300


def test_a_decimal_comma_is_offered_with_a_point() -> None:
    assert refused(mtbf="7,9h") == {"mtbf": "'7,9h' is not a duration. Write 7.9h."}


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0, "0 s"), (0.0123, "12.3 ms"), (0.14, "0.14 s"), (1.95, "1.95 s"), (14.2, "14.2 s"), (30, "30 s"),
     (59.96, "1 min"), (590, "9 min 50 s"), (3600, "1 h"),
     (28_440, "7 h 54 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (1e12, "31 688 years")],
)  # fmt: skip
def test_a_duration_is_written_as_people_say_it(duration_s: float, text: str) -> None:
    assert spoken(duration_s) == text


def test_values_and_defaults_become_a_request() -> None:
    request, errors = read({**SOUND, "step_time": "14.2", "nodes": 128, "planned_stops_per_week": 7})
    assert not errors
    assert request is not None
    assert (request.save_stall_s, request.mtbf_s, request.recovery_s, request.target) == (30, 36_000, 600, 0.93)
    assert (request.step_s, request.nodes, request.cluster_availability) == (14.2, 128, 1.0)
    assert request.planned_stops_per_s == pytest.approx(1 / 86_400)


def test_what_is_empty_is_not_given() -> None:
    request, errors = read(SOUND | {"drain": "", "downtime": "  ", "nodes": None})
    assert not errors
    assert request is not None
    assert (request.drain_s, request.downtime_s, request.nodes) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    "rate",
    [
        {"mtbf": 36_000},
        {"mtbf_s": 36_000},
        {"failures_per_day": "2.4"},
        {"per_1000_node_days": 6, "nodes": 400},
    ],
)
def test_the_rate_of_faults_can_be_told_in_several_units(rate: dict[str, object]) -> None:
    values = {name: value for name, value in SOUND.items() if name != "mtbf"}
    request, errors = read({**values, **rate})
    assert not errors
    assert request is not None
    assert request.inputs.mtbf_s == pytest.approx(36_000)


@pytest.mark.parametrize("rate", [{"mtbf": "none"}, {"failures_per_day": 0}, {"per_1000_node_days": 0, "nodes": 8}])
def test_there_may_be_no_faults(rate: dict[str, object]) -> None:
    request, errors = read({"save_stall": 30, "recovery": 600, "target": 0.99, **rate})
    assert not errors
    assert request is not None
    assert request.mtbf_s is None


def test_all_that_is_missing_is_told_at_once() -> None:
    _, errors = read({})
    assert [error.field for error in errors] == ["save_stall", "recovery", "target", "mtbf"]


def test_every_mistake_is_told_at_once_under_the_name_it_was_given() -> None:
    _, errors = read({"save_stall_s": "-5s", "mtbf": "60s", "recovery": "10m", "target": 93, "nodes": 1.5, "drian": 3})
    assert {error.field for error in errors} == {"save_stall_s", "mtbf", "target", "nodes", "drian"}


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"target": 93}, "target", "93 is a percentage. Write 0.93."),
        ({"target": "97.5%"}, "target", "'97.5%' is a percentage. Write 0.975."),
        ({"target": 1}, "target", "1 would allow no loss at all. Give a share between 0 and 1, such as 0.97."),
        ({"target": "1.0"}, "target", "1 would allow no loss at all. Give a share between 0 and 1, such as 0.97."),
        ({"cluster_availability": 99.5}, "cluster_availability", "99.5 is a percentage. Write 0.995."),
        ({"node_share": "60"}, "node_share", "'60' is a percentage. Write 0.6."),
        ({"drain": -1}, "drain", "-1 is negative. Give 0 or more. Write a time as 30, 30s, 5m, 7.9h or 12d."),
        ({"drain": math.nan}, "drain", "nan is not a finite number. Write a time as 30, 30s, 5m, 7.9h or 12d."),
        ({"standbys": 10**400}, "standbys",
         "a number of that size is too many. Give a whole number from 0 to 10000, such as 4."),
        ({"standbys": "four"}, "standbys", "'four' is not a number. Give a whole number from 0 to 10000, such as 4."),
        ({"stanbys": 4}, "stanbys", "is not a name known here. Did you mean standbys?"),
        ({"prior": "gut"}, "prior", "'gut' is not known. One of: jeffreys, fleet."),
        ({"mtbf": 0}, "mtbf",
         "0 would be a fault at every moment. Give a time such as 7.9h, or none for a job without faults."),
        ({"step_time": 0}, "step_time", "0 is not possible. Give a time above 0, such as 30s, or leave it out."),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_wrong_and_what_would_be_right(
    changes: dict[str, object], field: str, sentence: str
) -> None:
    assert refused(**changes) == {field: sentence}


def test_faults_must_not_come_before_the_recovery_is_over() -> None:
    sentence = refused(mtbf="5m")["mtbf"]
    assert sentence.startswith("a fault every 5 min comes sooner than the recovery of 10 min is over. Give at least 10")
    assert not refused(mtbf="10m")


def test_counted_faults_are_held_against_the_recovery_too() -> None:
    values = {name: value for name, value in SOUND.items() if name != "mtbf"}
    _, errors = read({**values, "faults": 100, "exposure": "1h"})
    assert [error.field for error in errors] == ["faults"]


def test_the_rate_of_faults_is_told_once() -> None:
    assert set(refused(failures_per_day=3, faults=2)) == {"failures_per_day", "faults", "exposure"}
    assert set(refused(exposure="7d")) == {"exposure", "faults"}


def test_a_rate_per_node_needs_the_nodes() -> None:
    values = {name: value for name, value in SOUND.items() if name != "mtbf"}
    assert [error.field for error in read({**values, "per_1000_node_days": 4})[1]] == ["nodes"]
    assert [e.field for e in read({**values, "faults": 0, "exposure": 0, "prior": "fleet"})[1]] == ["nodes"]


def test_no_time_at_all_is_enough_exposure_for_a_fleet_only() -> None:
    values = {name: value for name, value in SOUND.items() if name != "mtbf"} | {"faults": 0, "exposure": 0}
    assert [error.field for error in read(values)[1]] == ["exposure"]
    assert not read(values | {"prior": "fleet", "nodes": 64})[1]


def test_the_same_value_under_two_names_is_refused() -> None:
    assert refused(save_stall_s=30) == {"save_stall_s": "is the same as save_stall. Give one of them."}


def test_shares_of_faults_are_not_more_than_all() -> None:
    both = refused(node_share=0.6, memory_share=0.5)["memory_share"]
    assert "give a node_share of at most 0.5, or at most 0.4 here." in both
    assert "give a node_share of at most 0.5; without one" in refused(memory_share=0.5)["memory_share"]
    assert "give a node_share of at most 0.3333; " in refused(memory_share=2 / 3)["memory_share"]
    assert not refused(memory_share=2 / 3, node_share=0.3333)
    assert not refused(node_share=0.9, memory_share=0.1)


def test_a_present_period_holds_a_step_and_its_save() -> None:
    assert "with one step and one save it is 44.2 s" in refused(period="40s", step_time=14.2)["period"]
    assert "no longer than the save" in refused(period="30s")["period"]
    assert not refused(period="44.2s", step_time=14.2)


def test_a_step_that_is_too_long_for_the_target_is_refused() -> None:
    assert "saving after every step would be too seldom" in refused(step_time="2h")["step_time"]
    assert not refused(step_time="50m")
    assert not refused(step_time="2h", target=0.99)  # out of reach whatever the step is: an answer, not a mistake


def test_stops_that_take_all_time_are_refused_at_their_field() -> None:
    assert set(refused(planned_stops_per_week=100_000)) == {"planned_stops_per_week"}


def test_a_prefix_stands_before_each_name() -> None:
    _, errors = read({"stanbys": 1}, prefix="plan.")
    assert {"plan.stanbys", "plan.target"} <= {error.field for error in errors}
    assert "plan.standbys" in errors[0].hint


def test_a_value_that_changes_nothing_is_found() -> None:
    def of_no_use(given: dict[str, object], **known: object) -> list[str]:
        return [error.field for error in unused(given, {**SOUND, **known, **given})]

    assert of_no_use({"standbys": 2, "repair_s": None}) == ["standbys"]
    assert of_no_use({"repair_s": 60, "prior": "fleet", "observed_nodes": 8}) == ["repair_s", "prior", "observed_nodes"]
    assert not of_no_use({"standbys": 0, "repair": 60})
    assert not of_no_use({"repair": 60}, standbys=2)
    assert not of_no_use({"prior": "fleet", "observed_nodes": 8, "nodes": 8}, faults=1, exposure=60)
    assert not of_no_use({}, standbys=2)


def test_one_way_of_telling_the_rate_replaces_all_that_is_known() -> None:
    known = {"faults": 3, "exposure": 100.0, "prior": "jeffreys", "observed_nodes": 8, "drain": 5.0, "save_stall": 1.0}
    assert filled({"mtbf_s": 60, "drain": None}, known) == {"drain": None, "save_stall": 1.0, "mtbf_s": 60}


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*FIELDS, *ALIASES]) | st.text(max_size=12)


@settings(max_examples=400)
@given(values=st.dictionaries(NAMES, ANYTHING, max_size=12))
def test_nothing_that_is_given_raises(values: dict[str, Any]) -> None:
    request, errors = read(values)
    assert (request is None) is bool(errors)
    for error in errors:
        assert 0 < len(told(error).encode()) < 500
        assert len(error.field.encode()) < 200
