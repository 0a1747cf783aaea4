"""Which rows does a report want? One set of filters a resource; a value that is none is refused by name."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone
from django_filters import rest_framework as filters
from django_filters.fields import IsoDateTimeField

from reliability.domain.failover import Kind, State
from reliability.domain.faults import Action, FaultClass
from reliability.domain.health import NodeHealth, NodeRole
from reliability.domain.ledger import Standing
from reliability.domain.precision import Verdict
from reliability.domain.snapshots import CopyState, Tier
from reliability.models import (
    Decision,
    Failover,
    Finding,
    Incident,
    Job,
    MaintenanceWindow,
    Node,
    Plan,
    Snapshot,
    SnapshotCopy,
)
from reliability.models.decisions import MODES
from reliability.models.nodes import choices
from reliability.selectors import incident_pages, ledger_rows


class InstantField(IsoDateTimeField):
    """An instant that every database can hold."""

    default_error_messages = {"invalid": "Not an instant; ISO 8601 as 2026-03-01T12:00:00Z."}

    def clean(self, value: Any) -> datetime | None:
        """Return it in UTC. Raises ValidationError also for what lies outside the calendar there."""
        instant = super().clean(value)
        try:
            return instant.astimezone(UTC) if instant is not None else None
        except (OverflowError, ValueError) as error:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from error


class InstantFilter(filters.IsoDateTimeFilter):
    """A filter on an instant."""

    field_class = InstantField


def since(field: str) -> InstantFilter:
    """Return the filter for the earliest instant, inclusive."""
    return InstantFilter(field_name=field, lookup_expr="gte", label=f"{field} at or after, ISO 8601")


def until(field: str) -> InstantFilter:
    """Return the filter for the latest instant, exclusive: two reports that meet share no row."""
    return InstantFilter(field_name=field, lookup_expr="lt", label=f"{field} before, ISO 8601")


def ordering(*fields: str) -> filters.OrderingFilter:
    """Return the parameter `ordering`; a leading '-' turns it round."""
    return filters.OrderingFilter(fields=[(field, field.replace("__name", "")) for field in fields])


class NodeFilters(filters.FilterSet):
    """Nodes by role, health, tier, job; `since` and `until` are about when the server last heard of them."""

    role = filters.MultipleChoiceFilter(choices=choices(NodeRole))
    state = filters.MultipleChoiceFilter(field_name="health", choices=choices(NodeHealth), label="health")
    tier = filters.NumberFilter(min_value=0, max_value=32767, decimal_places=0)
    job = filters.CharFilter(field_name="slots__job__name", distinct=True)
    since = since("last_seen_at")
    until = until("last_seen_at")
    ordering = ordering("name", "role", "tier", "health", "last_seen_at", "registered_at")

    class Meta:
        model = Node
        fields = ()


class JobFilters(filters.FilterSet):
    """Jobs by state and node; `since` and `until` are about when they were submitted."""

    state = filters.MultipleChoiceFilter(choices=Job.State.choices)
    node = filters.CharFilter(field_name="slots__node__name", distinct=True)
    since = since("created_at")
    until = until("created_at")
    ordering = ordering("name", "state", "created_at", "started_at", "ended_at")

    class Meta:
        model = Job
        fields = ()


class SnapshotFilters(filters.FilterSet):
    """Snapshots by job, epoch, trust, and how they stand on a tier: `tier` and `state` together are about one tier."""

    job = filters.CharFilter(field_name="job__name")
    epoch = filters.NumberFilter(min_value=0, max_value=2**31 - 1, decimal_places=0)
    step = filters.NumberFilter(min_value=0, max_value=2**62, decimal_places=0)
    up_to_step = filters.NumberFilter(
        field_name="step",
        lookup_expr="lte",
        min_value=0,
        max_value=2**62,
        decimal_places=0,
        label="steps up to this one",
    )
    distrusted = filters.TypedChoiceFilter(
        choices=(("true", "true"), ("false", "false")), coerce=lambda text: text == "true", label="true or false"
    )
    removed = filters.ChoiceFilter(
        choices=(("true", "true"), ("false", "false")), method="by_removal", label="whether all copies were removed"
    )
    node = filters.CharFilter(method="by_node", label="a node that holds a copy")
    tier = filters.MultipleChoiceFilter(choices=choices(Tier), method="by_tier", label="tier")
    state = filters.MultipleChoiceFilter(choices=choices(Standing), method="by_state", label="how it stands there")
    since = since("created_at")
    until = until("created_at")
    ordering = ordering("step", "epoch", "created_at", "job__name")

    class Meta:
        model = Snapshot
        fields = ()

    def by_removal(self, rows: QuerySet[Snapshot], _name: str, value: str) -> QuerySet[Snapshot]:
        """Keep those of which retention removed every copy, or the others."""
        kept = ledger_rows.not_removed(rows)
        return kept if value == "false" else rows.exclude(pk__in=kept.values("pk"))

    def by_node(self, rows: QuerySet[Snapshot], _name: str, value: str) -> QuerySet[Snapshot]:
        """Keep those of which the node holds a copy, or held one."""
        node = Node.objects.filter(name=value).first()
        return (
            rows.filter(Exists(SnapshotCopy.objects.filter(snapshot=OuterRef("pk"), node=node)))
            if node
            else rows.none()
        )

    def by_tier(self, rows: QuerySet[Snapshot], _name: str, value: list[str]) -> QuerySet[Snapshot]:
        """Keep those that can be read there, unless a state says more."""
        if not value or self.form.cleaned_data.get("state"):
            return rows
        return ledger_rows.standing_so(rows, states=[], tiers=value)

    def by_state(self, rows: QuerySet[Snapshot], _name: str, value: list[str]) -> QuerySet[Snapshot]:
        """Keep those that stand so on one of the tiers that are asked for."""
        if not value:
            return rows
        given = self.form.cleaned_data
        jobs = Job.objects.filter(name=given["job"]).values_list("pk", flat=True) if given.get("job") else None
        tiers = given.get("tier") or []
        return ledger_rows.standing_so(rows, states=value, tiers=tiers, jobs=None if jobs is None else list(jobs))


COPY_STATES = ("committed", "verified", "trial_restored", "corrupt", "lost", "removed")


class CopyFilters(filters.FilterSet):
    """Copies of one snapshot by tier, state, rank and node."""

    tier = filters.MultipleChoiceFilter(choices=choices(Tier))
    state = filters.MultipleChoiceFilter(
        choices=[(state, state) for state in COPY_STATES], method="by_state", label="state"
    )
    rank = filters.NumberFilter(min_value=0, max_value=2**31 - 1, decimal_places=0)
    node = filters.CharFilter(field_name="node__name")

    class Meta:
        model = SnapshotCopy
        fields = ()

    def by_state(self, rows: QuerySet[SnapshotCopy], _name: str, value: list[str]) -> QuerySet[SnapshotCopy]:
        """Return the copies that stand so."""
        there = Q(state=CopyState.COMMITTED)
        known = {
            "committed": there & Q(verified_at=None, trial_restored_at=None),
            "verified": there & Q(verified_at__isnull=False, trial_restored_at=None),
            "trial_restored": there & Q(trial_restored_at__isnull=False),
            "corrupt": Q(state=CopyState.CORRUPT),
            "lost": Q(state=CopyState.LOST),
            "removed": Q(state=CopyState.DELETED),
        }
        wanted = Q(pk__in=[])
        for state in value:
            wanted |= known[state]
        return rows.filter(wanted) if value else rows


class IncidentFilters(filters.FilterSet):
    """Incidents by state (open or closed), class, action, code, job and node."""

    state = filters.ChoiceFilter(
        choices=(("open", "open"), ("closed", "closed")), method="by_state", label="open or closed"
    )
    fault_class = filters.MultipleChoiceFilter(choices=choices(FaultClass))
    action = filters.MultipleChoiceFilter(choices=choices(Action))
    code = filters.CharFilter()
    job = filters.CharFilter(field_name="job__name")
    node = filters.CharFilter(field_name="node__name")
    text = filters.CharFilter(method="by_text", max_length=200, label="in the incident or in its evidence")
    since = since("opened_at")
    until = until("opened_at")
    ordering = ordering("opened_at", "closed_at", "job__name", "node__name", "fault_class")

    class Meta:
        model = Incident
        fields = ()

    def by_text(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Keep those with a text."""
        return incident_pages.with_text(rows, value)

    def by_state(self, rows: QuerySet[Incident], _name: str, value: str) -> QuerySet[Incident]:
        """Return open or closed ones."""
        return rows.filter(closed_at__isnull=value == "open")


class FindingFilters(filters.FilterSet):
    """Findings by code and node; `since` and `until` are about when they were found."""

    code = filters.CharFilter()
    node = filters.CharFilter(field_name="node__name")
    since = since("found_at")
    until = until("found_at")

    class Meta:
        model = Finding
        fields = ()


class MaintenanceFilters(filters.FilterSet):
    """Planned windows by state, node and failure domain; `since`, `until`: those that share an instant with it."""

    state = filters.ChoiceFilter(
        choices=(("planned", "planned"), ("under way", "under way"), ("over", "over")), method="by_state", label="state"
    )
    node = filters.CharFilter(field_name="nodes__name", distinct=True, label="one that is named")
    domain = filters.CharFilter()
    since = InstantFilter(field_name="ends_at", lookup_expr="gt", label="ends after, ISO 8601")
    until = InstantFilter(field_name="starts_at", lookup_expr="lt", label="starts before, ISO 8601")
    ordering = ordering("starts_at", "ends_at")

    class Meta:
        model = MaintenanceWindow
        fields = ()

    def by_state(self, rows: QuerySet[MaintenanceWindow], _name: str, value: str) -> QuerySet[MaintenanceWindow]:
        """Keep those that stand so now."""
        now = timezone.now()
        wanted = {
            "planned": Q(starts_at__gt=now, ends_at__gt=F("starts_at")),
            "under way": Q(starts_at__lte=now, ends_at__gt=now),
            "over": Q(ends_at__lte=now) | Q(ends_at=F("starts_at")),
        }
        return rows.filter(wanted[value])


class DecisionFilters(filters.FilterSet):
    """Decisions by code, family, failure domain, job, node, mode and verdict; `since`, `until`: when they were made."""

    code = filters.CharFilter()
    family = filters.CharFilter()
    group = filters.CharFilter(label="a failure domain")
    job = filters.CharFilter(field_name="job__name")
    node = filters.CharFilter(field_name="node__name")
    incident = filters.NumberFilter(min_value=0, max_value=2**62, decimal_places=0)
    mode = filters.MultipleChoiceFilter(choices=MODES)
    verdict = filters.ChoiceFilter(
        choices=[("missing", "missing"), *choices(Verdict)], method="by_verdict", label="verdict"
    )
    since = since("at")
    until = until("at")
    ordering = ordering("id", "at", "code", "mode", "verdict")

    class Meta:
        model = Decision
        fields = ()

    def by_verdict(self, rows: QuerySet[Decision], _name: str, value: str) -> QuerySet[Decision]:
        """Keep those with this verdict, or those that still have none."""
        return rows.filter(verdict="" if value == "missing" else value)


class FailoverFilters(filters.FilterSet):
    """Failovers by state, kind, class of their incident, job and node (the failed one or the standby)."""

    state = filters.MultipleChoiceFilter(choices=choices(State))
    kind = filters.MultipleChoiceFilter(choices=choices(Kind))
    fault_class = filters.MultipleChoiceFilter(field_name="incident__fault_class", choices=choices(FaultClass))
    job = filters.CharFilter(field_name="job__name")
    node = filters.CharFilter(field_name="failed_node__name")
    standby = filters.CharFilter(field_name="standby__name")
    since = since("fault_at")
    until = until("fault_at")
    ordering = ordering("fault_at", "created_at", "ended_at", "state", "job__name")

    class Meta:
        model = Failover
        fields = ()


class PlanFilters(filters.FilterSet):
    """Plans by job, by who made them, and whether they are in force; `since` and `until` are about when they were."""

    job = filters.CharFilter(field_name="job__name")
    automatic = filters.TypedChoiceFilter(
        choices=(("true", "true"), ("false", "false")), coerce=lambda text: text == "true", label="true or false"
    )
    state = filters.ChoiceFilter(
        choices=(("open", "open"), ("closed", "closed")), method="by_state", label="open (no newer plan) or closed"
    )
    since = since("applied_at")
    until = until("applied_at")
    ordering = ordering("applied_at", "version", "target", "planned_ettr", "period_s", "job__name")

    class Meta:
        model = Plan
        fields = ()

    def by_state(self, rows: QuerySet[Plan], _name: str, value: str) -> QuerySet[Plan]:
        """Return those in force or on their way, or those that a newer one replaced."""
        return rows.filter(ended_at__isnull=value == "open")
