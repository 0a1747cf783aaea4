"""Django's administration: everything can be read; tiers, holds and the policy of jobs can be changed.

State is never edited here: failovers are decided through the same service as on the dashboard.
"""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from rest_framework.authtoken.models import TokenProxy

from reliability import models
from reliability.domain import class_actions
from reliability.domain.failover import State
from reliability.errors import InvalidInput, ReliabilityError
from reliability.forms import DecisionForm
from reliability.services import failovers, nodes

admin.site.site_header = "Stepkeeper administration"
admin.site.site_title = "Stepkeeper"
admin.site.index_title = "Users, nodes and records"
admin.site.unregister(TokenProxy)  # each person's token is theirs alone: it is shown once and never again


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nothing is added by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is changed by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is deleted by hand."""
        return False


class PartlyEditableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows of which people may change the named fields; only those are written."""

    editable: tuple[str, ...] = ()

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """All fields but the editable ones."""
        names = [field.name for field in self.model._meta.fields]
        return [name for name in names if name not in (*self.editable, *(self.exclude or ()))]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows come from agents and services."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are kept: others refer to them."""
        return False

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:  # type: ignore[type-arg]
        """Write what was changed and nothing else, so that a heartbeat meanwhile is not undone."""
        if form.changed_data:
            obj.save(update_fields=form.changed_data)


@admin.register(models.Node)
class NodeAdmin(PartlyEditableAdmin):
    """Nodes: what they are for and their priority can be changed."""

    editable = ("tier", "preemptible", "role_hint")
    exclude = ("token_hash",)
    list_display = ("name", "role", "tier", "preemptible", "health", "runtime", "last_seen_at")
    list_filter = ("role", "health", "tier", "runtime")
    search_fields = ("name", "address")


class JobPolicyForm(ModelForm):  # type: ignore[type-arg]
    """How a job is guarded: a class or action that is none is named."""

    def clean_class_actions(self) -> dict[str, str]:
        """Return class -> action; nothing given means that the table and the cluster decide."""
        try:
            return class_actions.read(self.cleaned_data["class_actions"] or {}, "class_actions")
        except InvalidInput as error:
            raise ValidationError(f"{error.message}. {error.hint}") from error


@admin.register(models.Job)
class JobAdmin(PartlyEditableAdmin):
    """Jobs: how each is guarded can be changed."""

    form = JobPolicyForm
    editable = ("approval", "unknown_action", "class_actions", "lease_rule", "restart_budget")
    list_display = ("name", "state", "epoch", "approval", "every_steps", "created_by", "created_at")
    list_filter = ("state", "approval")
    search_fields = ("name",)
    exclude = ("env",)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """Of the environment only the names: its values may be secrets."""
        return [*super().get_readonly_fields(request, obj), "env_names"]

    @admin.display(description="Names in the environment")
    def env_names(self, job: models.Job) -> str:
        """Return the names of the variables."""
        return ", ".join(sorted(job.env)) or "none"


@admin.register(models.Hold)
class HoldAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Holds: made and released through the service, never deleted."""

    list_display = ("node", "owner", "reason", "created_at", "released_at", "released_by")
    list_filter = ("owner",)
    fields = ("node", "reason")
    actions = ("release",)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A hold is released, not rewritten; the list itself stays open to those who may release."""
        return obj is None and request.user.has_perm("reliability.operate_job")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Operators may hold a node."""
        return request.user.has_perm("reliability.operate_job")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Released holds are kept as a record."""
        return False

    def save_model(self, request: HttpRequest, obj: models.Hold, form: ModelForm, change: bool) -> None:  # type: ignore[type-arg]
        """Hold the node in the name of the person."""
        obj.pk = nodes.hold(obj.node, owner=request.user.get_username(), reason=obj.reason).pk

    @admin.action(description="Release the chosen holds", permissions=["change"])
    def release(self, request: HttpRequest, rows: QuerySet[models.Hold]) -> None:
        """Let the nodes be used again."""
        for row in rows.filter(released_at=None):
            nodes.release_hold(row, by=request.user.get_username(), note="Released in the administration.")


class EventInline(admin.TabularInline):  # type: ignore[type-arg]
    """Every transition, read only."""

    model = models.FailoverEvent
    fields = readonly_fields = ("at", "source", "event", "target", "sentence", "actor")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Events are written by transitions alone."""
        return False


Decide = Callable[..., None]


@admin.register(models.Failover)
class FailoverAdmin(ReadOnlyAdmin):
    """Failovers: read, and decided on by those who may."""

    list_display = ("id", "job", "kind", "state", "failed_node", "standby", "restore_step", "decided_by", "created_at")
    list_filter = ("state", "kind")
    inlines = (EventInline,)
    change_form_template = "admin/reliability/failover/change_form.html"

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Those who may decide may read."""
        return super().has_view_permission(request, obj) or request.user.has_perm(failovers.PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        """Add the two decisions."""
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/approve/", view(self.approve), name="reliability_failover_approve"),
            path("<int:pk>/reject/", view(self.reject), name="reliability_failover_reject"),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Offer the decision while it waits for one."""
        found = kwargs.get("obj")
        waits = found is not None and found.state == State.AWAITING_APPROVAL
        context["can_decide"] = waits and request.user.has_perm(failovers.PERMISSION)
        return super().render_change_form(request, context, *args, **kwargs)

    def approve(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Approve what was shown."""
        return self._decide(request, pk, failovers.approve, "Approved: the recovery runs.")

    def reject(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Reject what was shown."""
        return self._decide(request, pk, failovers.reject, "Rejected: nothing was touched.")

    def _decide(self, request: HttpRequest, pk: int, decide: Decide, sentence: str) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm(failovers.PERMISSION) or not isinstance(request.user, User):
            raise PermissionDenied("Deciding on a failover needs the permission approve_failover.")
        found = self.get_object(request, str(pk))
        form = DecisionForm(request.POST)
        if found is None or not form.is_valid():
            self.message_user(request, "There is no such request, or no digest was sent.", messages.ERROR)
            return redirect("admin:reliability_failover_changelist")
        try:
            decide(found, by=request.user, digest=form.cleaned_data["digest"], note=form.cleaned_data["note"])
        except ReliabilityError as error:
            self.message_user(request, f"{error.message} {error.hint}", messages.ERROR)
        else:
            self.message_user(request, sentence)
        return redirect("admin:reliability_failover_change", pk)


@admin.register(models.Incident)
class IncidentAdmin(ReadOnlyAdmin):
    """Incidents."""

    list_display = ("id", "code", "fault_class", "action", "job", "node", "opened_at", "closed_at")
    list_filter = ("fault_class", "action")


@admin.register(models.Finding)
class FindingAdmin(ReadOnlyAdmin):
    """Findings."""

    list_display = ("id", "code", "severity", "node", "job", "rank", "epoch", "found_at")
    list_filter = ("severity", "code")


@admin.register(models.Snapshot)
class SnapshotAdmin(ReadOnlyAdmin):
    """Snapshots."""

    list_display = ("job", "epoch", "step", "distrusted", "created_at")
    list_filter = ("distrusted", "job")


@admin.register(models.Validation)
class ValidationAdmin(ReadOnlyAdmin):
    """Checks of standbys."""

    list_display = ("node", "check_kind", "verdict", "reason", "started_at", "ended_at")
    list_filter = ("verdict", "check_kind")


@admin.register(models.OrderRecord)
class OrderAdmin(ReadOnlyAdmin):
    """Orders to nodes. What an order carries is not shown: it holds the environment of the job."""

    exclude = ("payload",)
    list_display = ("kind", "node", "job", "epoch", "state", "sendings", "created_at")
    list_filter = ("kind", "state")


@admin.register(models.Report)
class ReportAdmin(ReadOnlyAdmin):
    """Reports of nodes."""

    list_display = ("id", "node", "kind", "job_name", "epoch", "state", "received_at")
    list_filter = ("state", "kind")


@admin.register(models.Drill)
class DrillAdmin(ReadOnlyAdmin):
    """Drills."""

    list_display = ("id", "what", "job", "node", "state", "started_by", "started_at")


@admin.register(models.Plan)
class PlanAdmin(ReadOnlyAdmin):
    """Applied periods."""

    list_display = (
        "job", "version", "every_steps", "from_step", "planned_ettr", "automatic", "applied_by", "applied_at",
        "began_at",
    )  # fmt: skip
    list_filter = ("automatic", "job")


@admin.register(models.AutoPlan)
class AutoPlanAdmin(ReadOnlyAdmin):
    """Limits of automatic plans; set through the service, on the planner's page."""

    list_display = ("job", "enabled", "target", "set_by", "set_at", "last_looked_at", "last_outcome")
    list_filter = ("enabled",)


@admin.register(models.Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """Decisions that judging came to."""

    list_display = ("id", "code", "action", "mode", "job", "node", "verdict", "at")
    list_filter = ("mode", "verdict", "action")


@admin.register(models.ModeRule)
class ModeRuleAdmin(ReadOnlyAdmin):
    """What is done by itself; set through the service, on the page of a fault code."""

    list_display = ("reach", "name", "group", "version", "kind", "mode", "changed_by", "changed_at")
    list_filter = ("kind", "mode")


admin.site.register(
    (
        models.DecisionVerdict,
        models.Epoch,
        models.Slot,
        models.Rank,
        models.SnapshotCopy,
        models.FailoverEvent,
        models.ServiceBeat,
        models.Lease,
    ),
    ReadOnlyAdmin,
)
