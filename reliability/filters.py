"""How lists are narrowed, on pages."""

from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet

from reliability.domain.ledger import Standing
from reliability.domain.precision import Verdict
from reliability.domain.snapshots import Tier
from reliability.models import Decision, Failover, Incident, Job, Node, Snapshot
from reliability.models.decisions import MODES
from reliability.models.nodes import choices
from reliability.selectors import core, incident_pages, ledger_rows


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
    """Incidents by whether they are open, class, action, node, code, job, and by a text in them or their evidence."""

    open = filters.ChoiceFilter(
        choices=(("yes", "open"), ("no", "closed"), ("held", "held back")),
        empty_label="open and closed",
        label="Open",
        method="by_open",
    )
    fault_class = filters.ChoiceFilter(
        choices=Incident._meta.get_field("fault_class").choices, empty_label="any class", label="Class"
    )
    node = filters.CharFilter(label="Node contains", method="by_node")
    code = filters.CharFilter(field_name="code", lookup_expr="icontains", label="Code contains")
    job = filters.CharFilter(field_name="job__name", lookup_expr="icontains", label="Job contains")
    text = filters.CharFilter(label="Text or evidence", method="by_text", max_length=200)

    class Meta:
        model = Incident
        fields = ("open", "fault_class", "node", "code", "job", "text")

    def by_open(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Keep open or closed ones, or those that are held back."""
        if value == "held":
            return rows.filter(closed_at=None, held_back=True)
        return rows.filter(closed_at__isnull=value == "yes")

    def by_node(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Keep those of a node."""
        return incident_pages.on_node(rows, value)

    def by_text(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Keep those with a text."""
        return incident_pages.with_text(rows, value)


class DecisionFilter(StyledFilterSet):
    """Decisions by code, failure domain, mode, job and verdict."""

    code = filters.CharFilter(field_name="code", lookup_expr="icontains", label="Code contains")
    group = filters.CharFilter(field_name="group", lookup_expr="iexact", label="Failure domain")
    job = filters.CharFilter(field_name="job__name", lookup_expr="icontains", label="Job contains")
    mode = filters.ChoiceFilter(choices=MODES, empty_label="any mode", label="Mode")
    verdict = filters.ChoiceFilter(
        choices=[("missing", "missing"), *choices(Verdict)],
        empty_label="any verdict",
        label="Verdict",
        method="by_verdict",
    )

    class Meta:
        model = Decision
        fields = ("code", "group", "job", "mode", "verdict")

    def by_verdict(self, rows: QuerySet[Decision], _name: str, value: str) -> QuerySet[Decision]:
        """Keep those with this verdict, or those that still have none."""
        return rows.filter(verdict="" if value == "missing" else value)


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


class LedgerFilter(StyledFilterSet):
    """Snapshots of some jobs by how they stand on a tier."""

    tier = filters.ChoiceFilter(choices=choices(Tier), empty_label="any tier", label="Tier", method="as_asked")
    state = filters.ChoiceFilter(choices=choices(Standing), empty_label="any state", label="State", method="as_asked")
    since_step = filters.NumberFilter(
        field_name="step", lookup_expr="lte", min_value=0, max_value=2**62, decimal_places=0, label="From step down"
    )

    removed = filters.ChoiceFilter(
        choices=[("shown", "removed ones too")], empty_label="kept ones", label="Show", method="also_removed"
    )

    class Meta:
        model = Snapshot
        fields = ("tier", "state", "since_step", "removed")

    def __init__(self, *args: Any, jobs: list[int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._jobs = jobs

    def filter_queryset(self, queryset: QuerySet[Snapshot]) -> QuerySet[Snapshot]:
        """Leave out what retention removed everywhere, unless it or a state is asked for."""
        rows: QuerySet[Snapshot] = super().filter_queryset(queryset)
        given = self.form.cleaned_data
        return rows if given.get("removed") or given.get("state") else ledger_rows.not_removed(rows)

    def also_removed(self, rows: QuerySet[Snapshot], _name: str, _value: str) -> QuerySet[Snapshot]:
        """Nothing is left out."""
        return rows

    def as_asked(self, rows: QuerySet[Snapshot], name: str, _value: str) -> QuerySet[Snapshot]:
        """Narrow by tier and state together: a snapshot that stands so on that tier."""
        given = self.form.cleaned_data
        if name == "tier" and given.get("state"):
            return rows  # the state asks for both
        states, tiers = ([given[key]] if given.get(key) else [] for key in ("state", "tier"))
        return ledger_rows.standing_so(rows, states=states, tiers=tiers, jobs=self._jobs)
