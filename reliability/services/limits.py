"""Limits of silence and of many nodes at once, as people set them: checked together, kept with who and why."""

import logging
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from reliability import conf
from reliability.domain.policy import ClusterPolicy
from reliability.errors import InvalidInput
from reliability.models import LimitChange
from reliability.services import clock, dispatch

SETTABLE = ("silence_s", "proof_s", "lone_node_s", "radius_share", "radius_nodes", "radius_window_s")
LEAST = {"proof_s": 0.5}
LONGEST_REASON = 300
MOST = 86400.0

log = logging.getLogger(__name__)


def set_limits(values: Mapping[str, Any], *, by: str, reason: str) -> LimitChange:
    """Set limits from now on; what is left out is as the settings say. Raises InvalidInput that names the field."""
    said = reason.strip()
    if not said or len(said) > LONGEST_REASON:
        raise InvalidInput("reason", "is needed", hint=f"At most {LONGEST_REASON} letters; it is kept.")
    known = {name: values[name] for name in SETTABLE if values.get(name) is not None}
    for name, value in known.items():
        if not LEAST.get(name, 0.0) <= value <= MOST:
            raise InvalidInput(name, f"{value:g} is out of range", hint=f"{LEAST.get(name, 0):g} to {MOST:g}.")
    policy = ClusterPolicy(**{**settings.STEPKEEPER, **known})
    differing = {name: getattr(policy, name) for name in known if settings.STEPKEEPER.get(name) != known[name]}
    with transaction.atomic():
        made = LimitChange.objects.create(values=differing, reason=said, changed_by=by, changed_at=clock.now())
        dispatch.changed("overview", "limits")
    refresh()
    return made


def refresh() -> None:
    """Take over in this process what was set last. Called every round, so that it holds everywhere within a second."""
    newest = LimitChange.objects.order_by("-id").values_list("values", flat=True).first() or {}
    try:
        conf.change_limits(newest)
    except InvalidInput as error:
        # The settings were changed since and do not go with it any more: then they hold as they are.
        log.warning("limits set on the page are passed over: %s %s", error.message, error.hint)
        conf.change_limits({})
