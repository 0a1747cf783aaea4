"""Planned maintenance over REST: read by all, planned and ended by those who may."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api import filters
from reliability.api.decisions import refused
from reliability.api.export import columns
from reliability.api.fault_codes import WRONG
from reliability.api.parsers import SmallJSONParser
from reliability.api.resources import NUMBER, MayView, Resource
from reliability.api.retention import OfJob
from reliability.domain import fields as f
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import MaintenanceWindow
from reliability.selectors import maintenance as selected
from reliability.services import maintenance
from reliability.services.maintenance import Plan

PERMISSION = "reliability.plan_maintenance"
SCOPES = MaintenanceWindow.Scope.choices


def _instant(value: object, path: str) -> datetime:
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
        at = found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise InvalidInput(path, "is no instant with a zone", hint="ISO 8601, as 2026-03-01T12:00:00Z.")
    return at


_PLAN = f.record(
    {
        "scope": (f.one_of(*MaintenanceWindow.Scope.values), True),
        "nodes": (f.nullable(f.list_of(f.name, most=maintenance.MOST_NODES), ()), False),
        "domain": (f.nullable(f.text(most=80), ""), False),
        "starts_at": (f.nullable(_instant), False),
        "ends_at": (_instant, True),
        "reason": (f.text(most=maintenance.LONGEST_REASON), True),
        "observe": (f.nullable(f.boolean, True), False),
        "stay": (f.nullable(f.boolean, True), False),
        "quiet": (f.nullable(f.boolean, True), False),
    }
)


class WindowSerializer(serializers.ModelSerializer[MaintenanceWindow]):
    """A planned window. `nodes` are those that are named; `observe`, `stay`, `quiet` say what is muted."""

    nodes = serializers.SlugRelatedField[Any](slug_field="name", many=True, read_only=True)
    scope = serializers.ChoiceField(SCOPES)
    state = serializers.SerializerMethodField()

    class Meta:
        model = MaintenanceWindow
        fields = (
            "id", "state", "scope", "nodes", "domain", "starts_at", "ends_at", "planned_until", "reason", "observe",
            "stay", "quiet", "planned_by", "planned_at", "ended_by", "ended_at",
        )  # fmt: skip

    def get_state(self, window: MaintenanceWindow) -> str:
        """Return planned, under way or over."""
        return selected.state_of(window, timezone.now())


class NewWindowSerializer(serializers.Serializer[Any]):
    """What is planned: for named nodes, a failure domain or all; without a start from now on."""

    scope = serializers.ChoiceField(SCOPES)
    nodes = serializers.ListField(child=serializers.CharField(), required=False)
    domain = serializers.CharField(required=False)
    starts_at = serializers.DateTimeField(required=False, allow_null=True)
    ends_at = serializers.DateTimeField()
    reason = serializers.CharField(max_length=maintenance.LONGEST_REASON)
    observe = serializers.BooleanField(required=False, default=True)
    stay = serializers.BooleanField(required=False, default=True)
    quiet = serializers.BooleanField(required=False, default=True)


class MayPlan(MayView):
    """Planning needs its own permission."""

    perms_map = {**MayView.perms_map, "POST": [PERMISSION]}


@extend_schema_view(
    list=extend_schema(summary="Planned maintenance"), retrieve=extend_schema(summary="A planned window")
)
class Windows(Resource):
    """Planned windows, the latest start first."""

    queryset = MaintenanceWindow.objects.prefetch_related("nodes")
    serializer_class = WindowSerializer
    filterset_class = filters.MaintenanceFilters
    permission_classes = [MayPlan]
    parser_classes: list[type[BaseParser]] = [SmallJSONParser]
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "state", "scope", "nodes", "domain", "starts_at", "ends_at", "planned_until", "reason", "observe",
        "stay", "quiet", "planned_by", "planned_at", "ended_by", "ended_at",
    )  # fmt: skip

    @extend_schema(
        summary="Plan maintenance",
        request=NewWindowSerializer,
        responses={201: WindowSerializer, 400: WRONG},
        filters=False,
    )
    def create(self, request: Request) -> Response:
        """Plan a window."""
        given = OfJob().read(request.data, _PLAN, set(NewWindowSerializer().fields))
        try:
            made = maintenance.plan(_plan(given), by=request.user.get_username())
        except InvalidInput as error:
            raise refused(error) from error
        return Response(WindowSerializer(made).data, status=status.HTTP_201_CREATED)


def _plan(given: Mapping[str, Any]) -> Plan:
    return Plan(**given)


class End(OfJob):
    """The end of a window."""

    queryset = MaintenanceWindow.objects.none()
    permission_classes = [MayPlan]

    @extend_schema(summary="End a planned window now, or call it off", request=None, responses=WindowSerializer)
    def post(self, request: Request, pk: str) -> Response:
        """End it; 409 when it is over."""
        found = get_object_or_404(MaintenanceWindow, pk=pk)
        try:
            ended = maintenance.end(found, by=request.user.get_username())
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(WindowSerializer(ended).data)
