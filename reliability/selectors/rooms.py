"""Which tiers are short of room, or soon will be?"""

from collections.abc import Collection

from django.db.models import Q

from reliability.domain.room import Level
from reliability.models import Room


def warnings(*, nodes: Collection[int] | None = None, places: Collection[str] = ()) -> list[Room]:
    """Return the rooms that are low or full, the worst first: of these nodes and shared places, or all. One query."""
    rows = Room.objects.exclude(level=Level.OK).select_related("node", "incident")
    if nodes is not None:
        rows = rows.filter(Q(node__in=list(nodes)) | Q(node=None, place__in=list(places)))
    return sorted(rows, key=lambda room: (room.level != Level.FULL, room.tier, room.pk))
