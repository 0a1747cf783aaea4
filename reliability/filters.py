"""How lists are narrowed, on pages."""

from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet

from reliability.models import Failover, Incident, Job, Node
from reliability.selectors import core


class StyledFilterSet(filters.FilterSet):
    """Gives widgets the classes of the CSS kit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for item in self.form.fields.values():
            kind = "form-select" if hasattr(item, "choices") else "form-control"
            item.widget.attrs.update({"class": kind, "aria-label": item.label or ""})


def _name() -> filters.CharFilter:
    return filters.CharFilter(field_name="name", lookup_expr="icontains", label="Name contains")


class JobFilter(StyledFilterSet):
    """Jobs by name and state."""

    name = _name()
    state = filters.ChoiceFilter(choices=Job.State.choices, empty_label="any state", label="State")

    class Meta:
        model = Job
        fields = ("name", "state")


class NodeFilter(StyledFilterSet):
    """Nodes by name, role and health."""

    name = _name()
    role = filters.ChoiceFilter(choices=Node._meta.get_field("role").choices, empty_label="any role", label="Role")
    health = filters.ChoiceFilter(
        choices=Node._meta.get_field("health").choices, empty_label="any health", label="Health"
    )
    held = filters.ChoiceFilter(
        choices=(("yes", "held"), ("no", "not held")), empty_label="held or not", label="Held", method="by_holds"
    )

    class Meta:
        model = Node
        fields = ("name", "role", "health", "held")

    def by_holds(self, rows: QuerySet[Node], _name: str, value: str) -> QuerySet[Node]:
        """Keep nodes with a hold in force, or those without."""
        held = Q(pk__in=core.active_holds().values("node"))
        return rows.filter(held if value == "yes" else ~held)


class IncidentFilter(StyledFilterSet):
    """Incidents by job, class, and whether they are open."""

    job = filters.CharFilter(field_name="job__name", lookup_expr="icontains", label="Job contains")
    fault_class = filters.ChoiceFilter(
        choices=Incident._meta.get_field("fault_class").choices, empty_label="any class", label="Class"
    )
    open = filters.ChoiceFilter(
        choices=(("yes", "open"), ("no", "closed")), empty_label="open and closed", label="Open", method="by_open"
    )

    class Meta:
        model = Incident
        fields = ("job", "fault_class", "open")

    def by_open(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Keep open or closed ones."""
        return rows.filter(closed_at__isnull=value == "yes")


class FailoverFilter(StyledFilterSet):
    """Recoveries by job, kind and state."""

    job = filters.CharFilter(field_name="job__name", lookup_expr="icontains", label="Job contains")
    kind = filters.ChoiceFilter(choices=Failover._meta.get_field("kind").choices, empty_label="any kind", label="Kind")
    state = filters.ChoiceFilter(
        choices=Failover._meta.get_field("state").choices, empty_label="any state", label="State"
    )

    class Meta:
        model = Failover
        fields = ("job", "kind", "state")
