"""Limits of silence and of many nodes at once over REST: read by all, set by those who may."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from reliability import conf
from reliability.api.decisions import refused
from reliability.api.fault_codes import WRONG
from reliability.api.resources import MayView
from reliability.api.retention import OfJob
from reliability.domain import fields as f
from reliability.domain import retrying
from reliability.errors import ReliabilityError
from reliability.models import LimitChange
from reliability.services import limits


class LimitsInForceSerializer(serializers.Serializer[Any]):
    """The limits in force. `least_silence_s` follows from the heartbeat, `retry_s` is the worst retry of an agent."""

    heartbeat_s = serializers.FloatField(read_only=True)
    lease_s = serializers.FloatField(read_only=True)
    least_silence_s = serializers.FloatField(read_only=True)
    retry_s = serializers.FloatField(read_only=True)
    silence_s = serializers.FloatField(required=False)
    proof_s = serializers.FloatField(required=False)
    lone_node_s = serializers.FloatField(required=False)
    radius_share = serializers.FloatField(required=False)
    radius_nodes = serializers.IntegerField(required=False)
    radius_window_s = serializers.FloatField(required=False)
    version = serializers.IntegerField(required=False, help_text="the version you saw; 409 when there is a newer one")
    reason = serializers.CharField(write_only=True, max_length=limits.LONGEST_REASON)


_LIMIT = f.nullable(f.number(least=0, most=limits.MOST))
_BODY = f.record(
    {
        **{name: (_LIMIT, False) for name in limits.SETTABLE if name != "radius_nodes"},
        "radius_nodes": (f.nullable(f.integer(least=0, most=1_000_000)), False),
        "reason": (f.text(most=limits.LONGEST_REASON), True),
        "version": (f.nullable(f.integer()), False),
    }
)


class MaySet(MayView):
    """Setting limits needs its own permission."""

    perms_map = {**MayView.perms_map, "PUT": ["reliability.set_limits"]}


class Limits(OfJob):
    """The limits in force."""

    queryset = LimitChange.objects.none()
    permission_classes = [MaySet]

    @extend_schema(summary="Limits of silence and of many nodes at once", responses=LimitsInForceSerializer)
    def get(self, request: Request) -> Response:
        """Return them."""
        return _answer()

    @extend_schema(
        summary="Set limits; one that is left out is as the settings say",
        request=LimitsInForceSerializer,
        responses={200: LimitsInForceSerializer, 400: WRONG, 409: OpenApiResponse(description="set meanwhile")},
    )
    def put(self, request: Request) -> Response:
        """Set all of them; 400 names what would cause false alarms, and what would be right."""
        given = self.read(request.data, _BODY, {*limits.SETTABLE, "reason", "version"})
        reason, seen = given.pop("reason"), given.pop("version")
        try:
            limits.set_limits(given, by=request.user.get_username(), reason=reason, seen=seen)
        except ReliabilityError as error:
            raise refused(error) from error
        return _answer()


def _answer() -> Response:
    policy = conf.cluster_policy()
    schedule = retrying.schedule(heartbeat_s=policy.heartbeat_s, silence_s=policy.silence_s)
    shown = {name: getattr(policy, name) for name in (*limits.SETTABLE, "heartbeat_s", "lease_s")}
    more = {"least_silence_s": retrying.least_silence_s(policy.heartbeat_s), "retry_s": schedule.worst_s}
    more["version"] = limits.newest()
    return Response(LimitsInForceSerializer({**shown, **more}).data)
