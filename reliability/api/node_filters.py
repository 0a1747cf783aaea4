"""Which events, holds and quarantines of nodes does a report want? A value that is none is refused by name."""

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from reliability.api.filters import ordering, since, until
from reliability.models import Hold, NodeEvent, Quarantine

STATES = (("open", "open"), ("closed", "closed"))


class ReleasedFilters(filters.FilterSet):
    """Rows that stand (open) or were released (closed)."""

    state = filters.ChoiceFilter(choices=STATES, method="by_state", label="open or closed")

    def by_state(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        """Keep those that stand, or those that were released."""
        return rows.filter(released_at__isnull=value == "open")


class EventFilters(filters.FilterSet):
    """Events by node, kind and time."""

    node = filters.CharFilter(field_name="node__name")
    kind = filters.MultipleChoiceFilter(choices=NodeEvent.Kind.choices)
    since = since("at")
    until = until("at")
    ordering = ordering("at", "node__name", "kind")

    class Meta:
        model = NodeEvent
        fields = ()


class HoldFilters(ReleasedFilters):
    """Holds by node, owner, state and time."""

    node = filters.CharFilter(field_name="node__name")
    owner = filters.CharFilter()
    since = since("created_at")
    until = until("created_at")
    ordering = ordering("created_at", "released_at", "node__name")

    class Meta:
        model = Hold
        fields = ()


class QuarantineFilters(ReleasedFilters):
    """Quarantines by the node they were found on, state and time."""

    node = filters.CharFilter(field_name="found_as")
    since = since("created_at")
    until = until("created_at")
    ordering = ordering("created_at", "released_at", "found_as")

    class Meta:
        model = Quarantine
        fields = ()
