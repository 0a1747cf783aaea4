"""The silence limit and the agent's retries fit, and limits that would cause false alarms are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import retrying
from reliability.domain.policy import ClusterPolicy
from reliability.errors import InvalidInput


@given(st.floats(0.1, 60), st.floats(1, 3600))
def test_one_lost_message_never_outlasts_a_limit_that_is_taken(heartbeat_s: float, silence_s: float) -> None:
    least_s = retrying.least_silence_s(heartbeat_s)
    limits: dict[str, Any] = {"heartbeat_s": heartbeat_s, "silence_s": silence_s, "lone_node_s": 3600}
    if silence_s < least_s:
        with pytest.raises(InvalidInput) as caught:
            ClusterPolicy(**limits, lease_s=min(silence_s, heartbeat_s + 1))
        assert caught.value.field == "silence_s"
        assert "worst retry" in caught.value.message
        return
    ClusterPolicy(**limits, lease_s=heartbeat_s + 1)
    schedule = retrying.schedule(heartbeat_s=heartbeat_s, silence_s=silence_s)
    assert 3 * heartbeat_s + schedule.worst_s <= silence_s + 1e-6


def test_a_period_of_30_s_with_a_limit_of_35_s_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(InvalidInput) as caught:
        ClusterPolicy(heartbeat_s=30, silence_s=35, lease_s=32)
    assert "35 s is less than three heartbeats (90 s) plus the worst retry of an agent (1 s)" in caught.value.message
    assert "at least 91 s" in caught.value.hint


@pytest.mark.parametrize(
    ("limits", "field"),
    [({"lease_s": 1.5}, "lease_s"), ({"lease_s": 7}, "lease_s"), ({"verify_limit_s": 2}, "verify_limit_s")],
)
def test_a_lease_or_first_step_that_is_too_short_is_refused(limits: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ClusterPolicy(**limits)
    assert caught.value.field == field


def test_the_longest_schedule_is_for_limits_with_room() -> None:
    assert retrying.schedule(heartbeat_s=1, silence_s=3600) == retrying.Schedule()
