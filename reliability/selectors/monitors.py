"""What monitors may send, and what they say that stands."""

from datetime import datetime, timedelta

from django.db.models import QuerySet

from reliability.domain.monitors.placing import Directory, Known
from reliability.models import MonitorState, MonitorToken, Node

SILENT_S = 900.0
"""A monitor that was not heard for so long vouches for nothing any more."""


def directory() -> Directory:
    """Return what finds nodes by the names that monitors have for them."""
    rows = Node.objects.values_list("name", "address", "hardware_ids")
    return Directory(Known(name=name, address=address, hardware_ids=ids or {}) for name, address, ids in rows)


def tokens() -> QuerySet[MonitorToken]:
    """Return all tokens, those that stand first."""
    return MonitorToken.objects.select_related("node").order_by("revoked_at", "name", "-id")


def stands(node_id: int | None, code: str, now: datetime) -> bool:
    """Return whether a monitor that is heard says that this condition of a node stands."""
    since = now - timedelta(seconds=SILENT_S)
    if node_id is None:
        return False
    said = MonitorState.objects.filter(node_id=node_id, seen_at__gte=since).values_list("standing", flat=True)
    return any(code in standing for standing in said)
