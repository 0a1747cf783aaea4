"""Acting on nodes over REST: holds, quarantine, overrides, with the permissions of the pages; repeat offenders."""

from datetime import timedelta
from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api.decisions import refused
from reliability.api.fault_codes import WRONG, Conflict
from reliability.api.node_records import HoldRecordSerializer, OverrideSerializer, QuarantineSerializer
from reliability.api.parsers import SmallJSONParser
from reliability.api.resources import MayView
from reliability.api.retention import MayOperate, OfJob
from reliability.domain import fields as f
from reliability.errors import ReliabilityError
from reliability.models import Hold, Node, Quarantine
from reliability.selectors import offenders
from reliability.services import nodes, quarantine

LONGEST_HOLD_S = 366 * 86_400.0
_why = f.text(most=500, least=1)
_HOLD = f.record({"reason": (_why, True), "lasts_s": (f.nullable(f.number(least=1, most=LONGEST_HOLD_S)), False)})
_NOTE = f.record({"note": (_why, True)})
_REASON = f.record({"reason": (_why, True)})
_OVERRIDE = f.record({"node": (f.name, True), "note": (_why, True)})


class OffenderSerializer(serializers.Serializer[Any]):
    """A machine with hardware incidents; names that share hardware are one."""

    nodes = serializers.ListField(child=serializers.CharField(), source="names")
    identities = serializers.ListField(child=serializers.CharField())
    in_30_days = serializers.IntegerField()
    in_90_days = serializers.IntegerField()
    newest_incident = serializers.IntegerField(source="newest.pk")
    newest_code = serializers.CharField(source="newest.code")
    newest_at = serializers.DateTimeField(source="newest.opened_at")
    quarantined = serializers.BooleanField()


class NewHoldSerializer(serializers.Serializer[Any]):
    """Why a node is held, and after how many seconds the hold ends by itself."""

    reason = serializers.CharField(max_length=500)
    lasts_s = serializers.FloatField(required=False, allow_null=True)


class NewQuarantineSerializer(serializers.Serializer[Any]):
    """Why hardware must not be used."""

    reason = serializers.CharField(max_length=500)


class LiftSerializer(serializers.Serializer[Any]):
    """Why it is lifted."""

    note = serializers.CharField(max_length=500)


class NewOverrideSerializer(LiftSerializer):
    """Which node is used in spite of a quarantine, and why."""

    node = serializers.CharField(max_length=80)


class MayOverride(MayView):
    """Using a node in spite of a quarantine needs its own permission."""

    perms_map = {**MayView.perms_map, "POST": ["%(app_label)s.override_quarantine"]}


class _Acts(OfJob):
    """What acts on nodes: no parameters, a small body, and the refusals of the services."""

    queryset = Node.objects.none()
    permission_classes = [MayOperate]
    parser_classes: list[type[BaseParser]] = [SmallJSONParser]

    @staticmethod
    def by(request: Request) -> str:
        """Return who asks."""
        return str(request.user.get_username())


class HoldNode(_Acts):
    """A hold on a node."""

    @extend_schema(summary="Hold a node", request=NewHoldSerializer, responses={201: HoldRecordSerializer, 400: WRONG})
    def post(self, request: Request, name: str) -> Response:
        """Keep the node from new work; the same owner and reason hold once."""
        node = get_object_or_404(Node, name=name)
        given = self.read(request.data, _HOLD, {"reason", "lasts_s"})
        lasts_s = given["lasts_s"]
        ends = None if lasts_s is None else timezone.now() + timedelta(seconds=lasts_s)
        made = nodes.hold(node, owner=self.by(request), reason=given["reason"], until=ends)
        return Response(HoldRecordSerializer(made).data, status=status.HTTP_201_CREATED)


class ReleaseHold(_Acts):
    """The release of a hold."""

    @extend_schema(summary="Release a hold", request=LiftSerializer, responses={200: HoldRecordSerializer, 400: WRONG})
    def post(self, request: Request, pk: str) -> Response:
        """Release it; 409 when it was released already."""
        found = get_object_or_404(Hold.objects.select_related("node"), pk=pk)
        note = self.read(request.data, _NOTE, {"note"})["note"]
        try:
            stood = nodes.release_hold(found, by=self.by(request), note=note)
        except ReliabilityError as error:
            raise refused(error) from error
        if not stood:
            raise Conflict("This hold was released already.")
        found.refresh_from_db()
        return Response(HoldRecordSerializer(found).data)


class QuarantineNode(_Acts):
    """A quarantine of a node's hardware."""

    @extend_schema(
        summary="Quarantine the hardware of a node",
        request=NewQuarantineSerializer,
        responses={201: QuarantineSerializer, 400: WRONG},
    )
    def post(self, request: Request, name: str) -> Response:
        """Have its hardware refused under any name; 409 when it is already."""
        node = get_object_or_404(Node, name=name)
        reason = self.read(request.data, _REASON, {"reason"})["reason"]
        try:
            made = quarantine.put_by_hand(node, reason=reason, by=self.by(request))
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(QuarantineSerializer(made).data, status=status.HTTP_201_CREATED)


class ReleaseQuarantine(_Acts):
    """The release of a quarantine."""

    @extend_schema(
        summary="Release a quarantine", request=LiftSerializer, responses={200: QuarantineSerializer, 400: WRONG}
    )
    def post(self, request: Request, pk: str) -> Response:
        """Let the hardware be used again; 409 when it was released already."""
        found = get_object_or_404(Quarantine.objects.select_related("node"), pk=pk)
        note = self.read(request.data, _NOTE, {"note"})["note"]
        try:
            quarantine.release(found, by=self.by(request), note=note)
        except ReliabilityError as error:
            raise refused(error) from error
        found.refresh_from_db()
        return Response(QuarantineSerializer(found).data)


class Override(_Acts):
    """A node that is used in spite of a quarantine."""

    permission_classes = [MayOverride]

    @extend_schema(
        summary="Use a node in spite of a quarantine",
        request=NewOverrideSerializer,
        responses={201: OverrideSerializer, 400: WRONG},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Let one node be used; for all others the quarantine stands."""
        found = get_object_or_404(Quarantine.objects.select_related("node"), pk=pk)
        given = self.read(request.data, _OVERRIDE, {"node", "note"})
        node = get_object_or_404(Node, name=given["node"])
        try:
            made = quarantine.override(found, node, by=self.by(request), note=given["note"])
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(OverrideSerializer(made).data, status=status.HTTP_201_CREATED)


class Offenders(_Acts):
    """Repeat offenders."""

    permission_classes = [MayView]

    @extend_schema(summary="Machines by number of hardware incidents", responses=OffenderSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Return them, most of the last 30 days first."""
        return Response(OffenderSerializer(offenders.repeat_offenders(timezone.now()), many=True).data)
