"""The settings as the typed policy that services hand to the domain."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from reliability.domain.policy import ClusterPolicy
from reliability.domain.progress import Rule
from reliability.domain.room import Limits
from reliability.errors import InvalidInput

_changed: dict[str, Any] = {}


@cache
def cluster_policy() -> ClusterPolicy:
    """Return the limits that hold for all nodes. Raises InvalidInput where settings contradict each other.

    What people set holds over the settings, as long as it goes with them.
    """
    limits: dict[str, Any] = settings.STEPKEEPER
    try:
        return ClusterPolicy(**{**limits, **_changed})
    except InvalidInput:
        return ClusterPolicy(**limits)


def change_limits(values: Mapping[str, Any]) -> None:
    """Take over in this process what people set over the settings. Raises InvalidInput and changes nothing then."""
    if dict(values) != _changed:
        ClusterPolicy(**{**settings.STEPKEEPER, **values})
        _changed.clear()
        _changed.update(values)
        cluster_policy.cache_clear()


def plan_window_s() -> float:
    """Return how far back the planner looks for what it measures."""
    return float(settings.PLAN_WINDOW_S)


def progress_rule() -> Rule:
    """Return when training counts as standing still (docs/progress.md)."""
    return Rule(
        floor_s=settings.HANG_FLOOR_S,
        steps=settings.HANG_STEPS,
        warm_up_s=settings.HANG_WARM_UP_S,
        quiet_s=settings.QUIET_S,
    )


def room_limits() -> Limits:
    """Return when a tier that runs full is warned of, for jobs that say nothing else."""
    return Limits(full_within_s=settings.WARN_FULL_WITHIN_S, free_share=settings.WARN_FREE_SHARE)


def _forget(*, setting: str, **_: object) -> None:
    if setting == "STEPKEEPER":
        cluster_policy.cache_clear()


setting_changed.connect(_forget)  # only override_settings sends this signal
