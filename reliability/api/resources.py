"""The resources of the REST interface: lists with filters, pages and CSV, and single rows. All of it only reads."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.permissions import DjangoModelPermissions
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.viewsets import ReadOnlyModelViewSet

from reliability.api import export, filters, serializers
from reliability.api.export import Column, columns
from reliability.api.parameters import FormatNegotiation, StrictFilterBackend
from reliability.domain.failover import OPEN
from reliability.domain.snapshots import Tier
from reliability.models import Failover, Hold, Job, Node
from reliability.selectors import core, quarantined

NUMBER = "[0-9]{1,18}"
Rows = list[Any]


class MayView(DjangoModelPermissions):
    """Reading needs the view permission, which all roles have."""

    perms_map = {
        **DjangoModelPermissions.perms_map,
        "GET": ["%(app_label)s.view_%(model_name)s"],
        "HEAD": ["%(app_label)s.view_%(model_name)s"],
        "OPTIONS": ["%(app_label)s.view_%(model_name)s"],
    }


class Resource(ReadOnlyModelViewSet[Any]):
    """What all resources share."""

    permission_classes = [MayView]
    renderer_classes = [JSONRenderer, export.CsvRenderer]
    content_negotiation_class = FormatNegotiation
    filter_backends = [StrictFilterBackend]
    csv_columns: tuple[Column, ...] = ()

    def list(  # type: ignore[override]
        self, request: Request, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return a page of rows, or all of them as CSV."""
        if request.accepted_renderer.format != export.CsvRenderer.format:
            return super().list(request, *args, **kwargs)
        rows = self.filter_queryset(self.get_queryset())
        parts = export.lines(self._represented(rows), self.csv_columns)
        return export.response(request._request, parts, name=self.basename)

    def detailed(self, rows: Rows) -> Rows:
        """Return the rows with what one more query brings for all of them at once."""
        return rows

    def paginate_queryset(self, queryset: Any) -> Rows | None:
        """Return the rows of a page."""
        page = super().paginate_queryset(queryset)
        return None if page is None else self.detailed(page)

    def get_object(self) -> Any:
        """Return one row."""
        return self.detailed([super().get_object()])[0]

    def _represented(self, rows: QuerySet[Any]) -> Iterator[Mapping[str, Any]]:
        serializer = self.get_serializer()
        source = rows.iterator(chunk_size=export.ROWS_A_CHUNK)
        while chunk := list(islice(source, export.ROWS_A_CHUNK)):
            yield from (serializer.to_representation(row) for row in self.detailed(chunk))


@extend_schema_view(list=extend_schema(summary="Nodes"), retrieve=extend_schema(summary="A node"))
class Nodes(Resource):
    """Nodes with role, tier, health and why, checks, holds and facts of the host."""

    queryset = Node.objects.prefetch_related(
        Prefetch("slots", core.active_slots().select_related("job"), to_attr="active_slots"),
        Prefetch("holds", Hold.objects.filter(released_at=None), to_attr="open_holds"),
        "checks",
    )
    serializer_class = serializers.NodeSerializer
    filterset_class = filters.NodeFilters
    lookup_field = "name"
    csv_columns = columns(
        "name", "role", "tier", "preemptible", "health", "health_reason", "jobs", "holds", "runtime", "address",
        "agent_version", "cpus=host_facts.cpus", "memory_bytes=host_facts.memory_bytes",
        "cpu_model=host_facts.cpu_model", "spooled",
        *(f"{tier}_free_bytes=disks.{tier}.free_bytes" for tier in Tier),
        "registered_at", "last_seen_at", "health_since", "quarantines",
    )  # fmt: skip

    def detailed(self, rows: Rows) -> Rows:
        """Return the rows with the quarantines that keep them from use."""
        barred = quarantined.by_node(rows)
        for row in rows:
            row.barred = barred.get(row.pk, ())
        return rows


@extend_schema_view(list=extend_schema(summary="Jobs"), retrieve=extend_schema(summary="A job"))
class Jobs(Resource):
    """Guarded jobs with their slots and ranks."""

    queryset = Job.objects.prefetch_related("slots__node", "ranks")
    serializer_class = serializers.JobSerializer
    filterset_class = filters.JobFilters
    lookup_field = "name"
    csv_columns = columns(
        "name", "state", "state_reason", "nodes", "ranks_per_node", "world_size", "epoch", "step", "runtime", "image",
        "approval", "every_steps", "created_by", "created_at", "started_at", "ended_at",
    )  # fmt: skip


@extend_schema_view(list=extend_schema(summary="Failovers"), retrieve=extend_schema(summary="A failover"))
class Failovers(Resource):
    """Recoveries with every transition and the time of each stage."""

    queryset = Failover.objects.select_related("job", "failed_node", "standby", "incident").prefetch_related("events")
    serializer_class = serializers.FailoverSerializer
    filterset_class = filters.FailoverFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "job", "kind", "state", "incident", "fault_class", "fault_code", "failed_node", "standby", "from_epoch",
        "to_epoch", "restore_epoch", "restore_step", "fault_step", "lost_steps", "attempt", "decided_by", "decided_at",
        "decision_note", "fault_at", "created_at", "ended_at", "judged_s", "recovery_s",
        *(f"{state}_s=stage_seconds.{state}" for state in OPEN),
    )  # fmt: skip
