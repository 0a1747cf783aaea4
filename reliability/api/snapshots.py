"""The ledger of snapshots over REST: steps by how they stand on each tier, the copies of one, and what is at risk."""

from typing import Any

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api import export, filters
from reliability.api.export import columns
from reliability.api.parameters import FormatNegotiation
from reliability.api.resources import NUMBER, MayView, Resource, Rows
from reliability.api.snapshot_serializers import (
    LINE,
    CopySerializer,
    RiskSerializer,
    SnapshotDetailSerializer,
    SnapshotSerializer,
)
from reliability.domain.snapshots import Tier
from reliability.errors import InvalidInput
from reliability.models import Job, Snapshot, SnapshotCopy
from reliability.selectors import ledger_pages, ledger_rows
from reliability.selectors.progress import job_lines
from reliability.services import clock

COUNTS = ("shards", "complete", "state", "verified", "size_bytes", "stall_s", "drain_s", "complete_at", "superseded")


@extend_schema_view(list=extend_schema(summary="Snapshots"))
class Snapshots(Resource):
    """The ledger of snapshots: which step has which shards on which tier, and how it stands there."""

    queryset = Snapshot.objects.select_related("job")
    serializer_class = SnapshotSerializer
    filterset_class = filters.SnapshotFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "job", "epoch", "step", "created_at", "in_line", "ranks", "held", "durable", "distrusted",
        "distrust_reason", *(f"{tier}_{name}=tiers.{tier}.{name}" for tier in Tier for name in COUNTS),
    )  # fmt: skip

    def detailed(self, rows: Rows) -> Rows:
        """Return the snapshots with what is counted of each, in two queries for all of them."""
        for row, line in zip(rows, ledger_rows.ledger_rows(rows), strict=True):
            setattr(row, LINE, line)
        return rows

    @extend_schema(summary="A snapshot, and what happened to it", responses=SnapshotDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return one snapshot with its events."""
        return Response(SnapshotDetailSerializer(self.get_object(), context=self.get_serializer_context()).data)

    @extend_schema(
        summary="The copies of a snapshot: every rank on every tier",
        responses=CopySerializer(many=True),
        parameters=[
            OpenApiParameter("tier", enum=list(Tier), many=True),
            OpenApiParameter("state", enum=list(filters.COPY_STATES), many=True),
            OpenApiParameter("rank", int),
            OpenApiParameter("node", str),
        ],
        filters=False,
    )
    @action(detail=True, filterset_class=filters.CopyFilters, serializer_class=CopySerializer)
    def copies(self, request: Request, pk: str = "") -> HttpResponseBase:
        """Return a page of copies, or all of them as CSV."""
        snapshot = get_object_or_404(Snapshot.objects.select_related("job"), pk=pk)
        rows = SnapshotCopy.objects.filter(snapshot=snapshot).select_related("node").order_by("rank", "tier", "pk")
        narrowed = self._narrowed(rows)
        serializer = CopySerializer(context={"in_line": ledger_rows.is_current(snapshot)})
        if request.accepted_renderer.format == export.CsvRenderer.format:
            told = (serializer.to_representation(row) for row in narrowed.iterator(chunk_size=export.ROWS_A_CHUNK))
            name = f"snapshot-{snapshot.pk}-copies"
            return export.response(
                request._request, export.lines(told, columns(*CopySerializer.Meta.fields)), name=name
            )
        page = self.paginator.paginate_queryset(narrowed, request, view=self)  # type: ignore[union-attr]
        return self.get_paginated_response([serializer.to_representation(row) for row in page or ()])

    def _narrowed(self, rows: QuerySet[SnapshotCopy]) -> QuerySet[SnapshotCopy]:
        asked = filters.CopyFilters(self.request.query_params, rows)
        unknown = sorted(set(self.request.query_params) - {*asked.filters, "page", "page_size", "format"})
        if unknown:
            known = ", ".join(sorted(asked.filters))
            raise ValidationError({name: [f"Not a parameter here; one of: {known}."] for name in unknown})
        if not asked.is_valid():
            raise ValidationError(asked.errors)
        narrowed: QuerySet[SnapshotCopy] = asked.qs
        return narrowed

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows asked for. Raises ValidationError that names the parameter."""
        try:
            return super().filter_queryset(queryset)
        except InvalidInput as error:
            raise ValidationError({error.field: [f"{error.message}. {error.hint}"]}) from error


class WorkAtRisk(APIView):
    """From which step a job could go on now, what that would cost, and the same for the loss of each node."""

    queryset = Snapshot.objects.none()
    permission_classes = [MayView]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation

    @extend_schema(summary="Work at risk of a job", responses=RiskSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return it as of now."""
        job = get_object_or_404(Job, name=name)
        now = clock.now()
        line = job_lines([job], now=now)[0]
        return Response(RiskSerializer({"line": line, "now": now, "held_back": ledger_pages.held_back(line)}).data)
