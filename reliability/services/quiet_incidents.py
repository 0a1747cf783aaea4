"""Which incidents close by themselves? Those that were only observed, once nothing new is found for a while."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from reliability.domain.faults import Action
from reliability.models import Incident
from reliability.selectors import fault_codes, fault_context, monitors
from reliability.services.incident_locks import locked

QUIET_S = 600.0
CLOSED_ELSEWHERE = ("control-plane", "tier-filling")
"""Incidents that stay open until what they tell of is over, however quiet it is."""
_OBSERVED = Q(closed_at=None, action=Action.OBSERVE)


def close_quiet(now: datetime) -> None:
    """Close incidents that were only observed, to which nothing was added for QUIET_S, and of which nothing lasts.

    One that is held back because many nodes show the same stays open: whether it is released, a person decides.
    """
    limit, matcher = now - timedelta(seconds=QUIET_S), fault_codes.matcher()
    observed = Incident.objects.filter(_OBSERVED, opened_at__lt=limit).exclude(code__in=CLOSED_ELSEWHERE)
    for incident in observed.exclude(findings__last_at__gte=limit):
        if monitors.stands(incident.node_id, incident.code, now) or fault_context.lasts(incident, matcher, now=now):
            continue
        _close(incident, limit, now)


def _close(incident: Incident, limit: datetime, now: datetime) -> None:
    """Close it unless it was raised, closed or added to before its lock was had."""
    with transaction.atomic():
        standing = Incident.objects.filter(_OBSERVED, pk=locked(incident).pk)
        standing.exclude(findings__last_at__gte=limit).update(closed_at=now, close_reason="Nothing new was found.")
