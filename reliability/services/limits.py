"""Limits of silence and of many nodes at once, as people set them: checked together, kept with who and why."""

import logging
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from reliability import conf
from reliability.domain.policy import ClusterPolicy
from reliability.errors import InvalidInput, StaleProposal
from reliability.models import LimitChange
from reliability.services import clock, dispatch

SETTABLE = ("silence_s", "proof_s", "lone_node_s", "radius_share", "radius_nodes", "radius_window_s")
LEAST = {"proof_s": 0.5}
LONGEST_REASON = 300
MOST = 86400.0
SHOWN_UP_TO = 1e15

log = logging.getLogger(__name__)


def set_limits(values: Mapping[str, Any], *, by: str, reason: str, seen: int | None = None) -> LimitChange:
    """Set limits from now on; what is left out is as the settings say.

    Raises InvalidInput that names the field, and StaleProposal when somebody set them after change `seen`.
    """
    said = reason.strip()
    if not said or len(said) > LONGEST_REASON:
        raise InvalidInput("reason", "is needed", hint=f"At most {LONGEST_REASON} letters; it is kept.")
    known = {name: values[name] for name in SETTABLE if values.get(name) is not None}
    for name, value in known.items():
        if not LEAST.get(name, 0.0) <= value <= MOST:
            raise InvalidInput(name, f"{_shown(value)} is out of range", hint=f"{LEAST.get(name, 0):g} to {MOST:g}.")
    policy = ClusterPolicy(**{**settings.STEPKEEPER, **known})
    differing = {name: getattr(policy, name) for name in known if settings.STEPKEEPER.get(name) != known[name]}
    with transaction.atomic():
        _check_seen(seen)
        made = LimitChange.objects.create(values=differing, reason=said, changed_by=by, changed_at=clock.now())
        dispatch.changed("overview", "limits")
    refresh()
    return made


def _shown(value: float) -> str:
    return f"{value:g}" if abs(value) <= SHOWN_UP_TO else "the number"


def _check_seen(seen: int | None) -> None:
    """Let changes pass one after the other. Raises StaleProposal when the newest is not the one that was seen."""
    list(ContentType.objects.select_for_update().filter(app_label="reliability", model="limitchange"))
    if seen is not None and seen != newest():
        raise StaleProposal("Somebody set the limits meanwhile.", hint="Look at them again before you set them.")


def newest() -> int:
    """Return the number of the change in force, 0 before the first."""
    return LimitChange.objects.order_by("-id").values_list("pk", flat=True).first() or 0


def in_force_after(change: int) -> dict[str, Any]:
    """Return what each limit was once a change was made, before the first (0) as the settings say."""
    kept = LimitChange.objects.filter(pk=change).first()
    own: dict[str, Any] = settings.STEPKEEPER
    try:
        policy = ClusterPolicy(**{**own, **(kept.values if kept else {})})
    except InvalidInput:
        policy = ClusterPolicy(**own)
    return {name: getattr(policy, name) for name in SETTABLE}


def refresh() -> None:
    """Take over in this process what was set last. Called every round, so that it holds everywhere within a second."""
    values = LimitChange.objects.order_by("-id").values_list("values", flat=True).first() or {}
    try:
        conf.change_limits(values)
    except InvalidInput as error:
        # The settings were changed since and do not go with it any more: then they hold as they are.
        log.warning("limits set on the page are passed over: %s %s", error.message, error.hint)
        conf.change_limits({})
