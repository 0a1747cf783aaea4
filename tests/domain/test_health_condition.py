"""The condition of a node: what makes it worse and better, what is said of it, and what never reads as green."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.health import (
    PLACE,
    Cause,
    CheckSeen,
    Condition,
    HoldSeen,
    IncidentSeen,
    NodeHealth,
    QuarantineSeen,
    Rules,
    Seen,
    derive,
)

RULES = Rules()
HEALTHY = Condition(state=NodeHealth.HEALTHY)


def check(ok: bool | None, *, since: float = 0.0, name: str = "edac", **values: Any) -> CheckSeen:
    defaults = {"checked_at": 0.0, "limit_s": 1e9, "reason": "3 errors"}
    return CheckSeen(name=name, ok=ok, since=since, **(defaults | values))


def at(now: float, seen: Seen, before: Condition = HEALTHY) -> Condition:
    return derive(seen, before, now=now, rules=RULES)


def incident(**values: Any) -> IncidentSeen:
    defaults = {
        "number": 7, "summary": "Bad memory", "code": "xid-95", "fault_class": "hardware", "action": "observe",
        "of_job": False, "since": 0.0,
    }  # fmt: skip
    return IncidentSeen(**(defaults | values))


def test_a_node_of_which_nothing_bad_is_known_is_healthy_whatever_checks_it_has() -> None:
    assert at(5, Seen()) == HEALTHY
    assert at(5, Seen(), Condition()).state is NodeHealth.HEALTHY
    assert at(5, Seen(checks=(check(True),))) == HEALTHY


@pytest.mark.parametrize(("ok", "state"), [(False, NodeHealth.DEGRADED), (None, NodeHealth.UNKNOWN)])
def test_a_check_that_does_not_pass_counts_after_the_debounce_time_and_is_named(
    ok: bool | None, state: NodeHealth
) -> None:
    seen = Seen(checks=(check(ok),))
    assert at(RULES.debounce_s - 0.1, seen) == HEALTHY
    found = at(RULES.debounce_s, seen)
    assert found.state is state
    assert "edac" in found.reason
    assert "3 errors" in found.reason
    assert "30 s" in found.causes[0].clears


def test_a_check_out_of_date_is_unknown_though_it_passed_last() -> None:
    seen = Seen(checks=(check(True, checked_at=100.0, limit_s=60.0),))
    assert at(160, seen) == HEALTHY
    assert at(169, seen) == HEALTHY
    found = at(171, seen)
    assert found.state is NodeHealth.UNKNOWN
    assert "out of date" in found.reason


def test_a_check_does_not_grow_old_while_nobody_listened_or_the_node_is_silent() -> None:
    old = (check(True, checked_at=100.0, limit_s=60.0),)
    assert at(1000, Seen(checks=old, listening_since=995.0)) == HEALTHY
    silent = at(1000, Seen(checks=old, silent_since=500.0))
    assert silent.state is NodeHealth.UNREACHABLE
    assert [cause.key for cause in silent.causes] == ["silent"]


def test_a_node_gets_better_only_after_the_stable_time_and_says_so_meanwhile() -> None:
    bad = at(20, Seen(checks=(check(False),)))
    over = at(21, Seen(), bad)
    assert over.state is NodeHealth.DEGRADED
    assert over.causes[0].ended_at == 21
    assert at(21 + RULES.stable_s - 0.1, Seen(), over).state is NodeHealth.DEGRADED
    assert at(21 + RULES.stable_s, Seen(), over) == HEALTHY


def test_a_trouble_that_comes_back_before_it_was_over_needs_no_new_debounce_and_keeps_its_beginning() -> None:
    over = at(21, Seen(), at(20, Seen(checks=(check(False),))))
    again = at(25, Seen(checks=(check(False, since=24.9),)), over)
    assert again.state is NodeHealth.DEGRADED
    assert again.causes[0].ended_at is None
    assert again.causes[0].since == 0.0


def test_what_is_kept_of_a_condition_is_the_condition_again() -> None:
    found = at(20, Seen(checks=(check(False),), holds=(HoldSeen(number=1, owner="bob", reason="fan", since=3.0),)))
    kept = json.loads(json.dumps([cause.as_values() for cause in found.causes]))
    assert Condition(state=found.state, causes=tuple(Cause.of(values) for values in kept)) == found


def test_a_node_that_gets_worse_again_and_again_stays_degraded_until_it_was_quiet_for_the_window() -> None:
    times = tuple(float(60 * each) for each in range(RULES.flaps))
    few = at(200, Seen(worsened=times[1:]))
    assert few == HEALTHY
    found = at(200, Seen(worsened=times))
    assert found.state is NodeHealth.DEGRADED
    assert "to and fro" in found.reason
    later = at(RULES.flap_window_s + 100, Seen(worsened=times[2:]), found)
    assert later.state is NodeHealth.DEGRADED, "fewer than it takes, but not quiet yet"
    assert at(RULES.flap_window_s + 181, Seen(worsened=times), later) == HEALTHY


def test_many_checks_that_stop_for_one_reason_are_worse_once() -> None:
    once = tuple(100.0 + 0.1 * each for each in range(11))
    assert at(200, Seen(worsened=once)) == HEALTHY
    assert at(200, Seen(worsened=(*once, 20.0, 40.0, 60.0))).state is NodeHealth.DEGRADED


def test_silence_makes_unreachable_and_its_end_makes_healthy_at_once() -> None:
    silent = at(50, Seen(silent_since=40.0))
    assert silent.state is NodeHealth.UNREACHABLE
    assert "no failure" in silent.reason
    assert at(51, Seen(), silent) == HEALTHY


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, NodeHealth.DEGRADED),
        ({"fault_class": "thermal"}, NodeHealth.DEGRADED),
        ({"fault_class": "unknown"}, NodeHealth.HEALTHY),
        ({"fault_class": "storage"}, NodeHealth.HEALTHY),
        ({"fault_class": "software", "action": "hold"}, NodeHealth.UNHEALTHY),
        ({"of_job": True}, NodeHealth.HEALTHY),
        ({"of_job": True, "action": "failover"}, NodeHealth.UNHEALTHY),
        ({"of_job": True, "action": "failover", "code": "node-lost"}, NodeHealth.HEALTHY),
        ({"of_job": True, "action": "failover", "fault_class": "application"}, NodeHealth.HEALTHY),
        ({"of_job": True, "action": "restart_in_place"}, NodeHealth.HEALTHY),
    ],
)
def test_an_open_incident_counts_by_class_and_action(values: dict[str, Any], state: NodeHealth) -> None:
    assert at(5, Seen(incidents=(incident(**values),))).state is state


def test_a_hold_is_told_and_leaves_the_node_healthy() -> None:
    found = at(5, Seen(holds=(HoldSeen(number=1, owner="bob", reason="fan", since=3.0),)))
    assert (found.state, found.reason) == (NodeHealth.HEALTHY, "")
    assert "bob: fan" in found.causes[0].text


def test_quarantined_hardware_is_unhealthy_under_any_name_and_tells_the_incident_once() -> None:
    same = QuarantineSeen(number=2, reason="Bad memory", since=0.0, incident=7)
    found = at(5, Seen(quarantines=(same,), incidents=(incident(action="hold"),)))
    assert [cause.key for cause in found.causes] == ["quarantine:2"]
    other = QuarantineSeen(number=2, reason="Bad memory", since=0.0, incident=7, found_as="n1", what="board serial X9")
    told = at(5, Seen(quarantines=(other,))).reason
    for word in ("board serial X9", "n1", "incident 7", "Bad memory"):
        assert word in told


def test_the_worst_cause_comes_first() -> None:
    seen = Seen(
        silent_since=0.0,
        checks=(check(False, name="disk"), check(None, name="gpu")),
        incidents=(incident(action="hold"),),
        holds=(HoldSeen(number=1, owner="bob", reason="fan", since=0.0),),
    )
    found = at(20, seen)
    keys = [cause.key for cause in found.causes]
    assert keys == ["incident:7", "silent", "check:gpu", "check:disk", "hold:1"]
    assert found.state is NodeHealth.UNHEALTHY


def test_a_node_that_was_marked_as_bad_without_a_known_cause_stays_so() -> None:
    marked = Condition(state=NodeHealth.UNHEALTHY, told="Fell over.")
    found = at(5, Seen(), marked)
    assert (found.state, found.reason) == (NodeHealth.UNHEALTHY, "Fell over.")
    assert at(6, Seen(silent_since=1.0), found).reason == "Fell over."


ages = st.floats(0, 2000)
checks = st.builds(
    CheckSeen,
    name=st.sampled_from("abc"),
    ok=st.sampled_from([True, False, None]),
    since=ages,
    checked_at=st.none() | ages,
    limit_s=st.floats(1, 500),
)
seens = st.builds(
    Seen,
    silent_since=st.none() | ages,
    listening_since=ages,
    checks=st.lists(checks, max_size=3, unique_by=lambda each: each.name).map(tuple),
    worsened=st.lists(ages, max_size=6).map(tuple),
)


@given(st.lists(seens, min_size=1, max_size=6))
def test_whatever_came_before_a_check_without_a_good_result_is_never_green_for_long(history: list[Seen]) -> None:
    condition, now = Condition(), 2000.0
    for seen in history:
        condition = at(now, seen, condition)
        now += 5.0
    last = history[-1]
    settled = at(now + RULES.debounce_s, last, condition)
    bad = [each for each in last.checks if not each.ok]
    if bad or last.silent_since is not None:
        assert settled.state is not NodeHealth.HEALTHY
    assert all(cause.text and cause.clears for cause in settled.causes)
    places = [PLACE[cause.state] for cause in settled.causes]
    assert places == sorted(places)


@given(seens, st.floats(2000, 3000))
def test_the_same_again_changes_nothing(seen: Seen, now: float) -> None:
    once = at(now, seen, at(now, seen))
    assert at(now, seen, once) == once
