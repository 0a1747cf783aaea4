"""What monitors may send, and what they say that stands."""

import time
from datetime import datetime, timedelta
from functools import lru_cache

from django.db.models import Count, Max, QuerySet

from reliability.domain.monitors.placing import Directory, Known
from reliability.models import MonitorState, MonitorToken, Node

SILENT_S = 900.0
"""A monitor that was not heard for so long vouches for nothing any more."""
FRESH_S = 5.0


def directory() -> Directory:
    """Return what finds nodes by the names that monitors have for them, at most FRESH_S old."""
    mark = Node.objects.aggregate(nodes=Count("pk"), last=Max("registered_at"))
    return _directory(int(time.monotonic() / FRESH_S), mark["nodes"], mark["last"])


@lru_cache(maxsize=1)
def _directory(_time: int, _nodes: int, _last: datetime | None) -> Directory:
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
