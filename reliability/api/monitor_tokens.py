"""Foreign monitors over REST: which have a token, what was heard of them, and giving and revoking tokens."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api.parameters import FormatNegotiation
from reliability.api.parsers import SmallJSONParser
from reliability.api.resources import MayView
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import MonitorState, MonitorToken, Node
from reliability.selectors import monitors as reads
from reliability.services import monitors

MOST_HEARD = 10_000


class MayManage(MayView):
    """Reading needs what reading needs; giving and revoking needs the permission for it."""

    perms_map = {
        **MayView.perms_map,
        **{method: ["%(app_label)s.manage_monitor_tokens"] for method in ("POST", "DELETE")},
    }


class MonitorTokenSerializer(serializers.ModelSerializer[MonitorToken]):
    """A token, without its text."""

    node = serializers.CharField(source="node.name", default=None, allow_null=True, read_only=True)

    class Meta:
        model = MonitorToken
        fields = ("id", "name", "node", "sent", "created_by", "created_at", "used_at", "revoked_by", "revoked_at")


class MonitorStateSerializer(serializers.ModelSerializer[MonitorState]):
    """What a kind of monitor said last of a node."""

    node = serializers.CharField(source="node.name", read_only=True)
    standing = serializers.ListField(child=serializers.CharField(), help_text="codes of conditions that stand")

    class Meta:
        model = MonitorState
        fields = ("node", "source", "seen_at", "standing")


class MonitorsSerializer(serializers.Serializer[Any]):
    """All tokens, those that stand first, and all that was heard, newest first."""

    tokens = MonitorTokenSerializer(many=True)
    heard = MonitorStateSerializer(many=True)


class GivenTokenSerializer(MonitorTokenSerializer):
    """A new token with its text, which is kept nowhere."""

    token = serializers.CharField()

    class Meta(MonitorTokenSerializer.Meta):
        fields = (*MonitorTokenSerializer.Meta.fields, "token")  # type: ignore[assignment]


class WantedTokenSerializer(serializers.Serializer[Any]):
    """Who gets a token, and of which node it may speak."""

    name = serializers.CharField(max_length=80)
    node = serializers.SlugRelatedField(
        slug_field="name",
        queryset=Node.objects.all(),
        required=False,
        allow_null=True,
        help_text="null: every node that the monitor names",
    )


class _Monitors(APIView):
    """What the addresses of monitors share."""

    queryset = MonitorToken.objects.none()
    permission_classes = [MayManage]
    parser_classes = [SmallJSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation


class Monitors(_Monitors):
    """All monitors."""

    @extend_schema(summary="Foreign monitors", responses=MonitorsSerializer)
    def get(self, request: Request) -> Response:
        """Return the tokens and what was heard."""
        heard = MonitorState.objects.select_related("node").order_by("-seen_at")[:MOST_HEARD]
        return Response(MonitorsSerializer({"tokens": reads.tokens(), "heard": heard}).data)

    @extend_schema(
        summary="Give a monitor a token",
        request=WantedTokenSerializer,
        responses={201: GivenTokenSerializer, 400: OpenApiResponse(OpenApiTypes.OBJECT)},
    )
    def post(self, request: Request) -> Response:
        """Return the token; its text is shown this once."""
        wanted = WantedTokenSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        try:
            token, text = monitors.give_token(values["name"], node=values.get("node"), by=request.user.get_username())
        except InvalidInput as error:
            told = error.message.removeprefix(f"{error.field}: ")
            raise ValidationError({error.field: [f"{told}. {error.hint}".strip()]}) from error
        return Response({**MonitorTokenSerializer(token).data, "token": text}, status=status.HTTP_201_CREATED)


class MonitorOne(_Monitors):
    """One token."""

    @extend_schema(
        summary="Revoke a monitor's token", responses={204: None, 400: OpenApiResponse(description="revoked already")}
    )
    def delete(self, request: Request, pk: str) -> Response:
        """Revoke it: nothing is taken with it any more."""
        try:
            monitors.revoke(get_object_or_404(MonitorToken, pk=int(pk)), by=request.user.get_username())
        except ReliabilityError as error:
            raise ValidationError({"non_field_errors": [error.message]}) from error
        return Response(status=status.HTTP_204_NO_CONTENT)
