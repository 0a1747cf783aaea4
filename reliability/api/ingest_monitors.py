"""The one address to which foreign monitors send what they see: DCGM's metrics, gpud, the node problem detector.

It needs a monitor's token and reads nothing out. What it means, and what of it is new, stands in domain/monitors.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotFound, ParseError, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api.parsers import SmallJSONParser, TooLarge
from reliability.domain.monitors import read_json, read_text
from reliability.domain.monitors.words import Said
from reliability.errors import InvalidInput
from reliability.models import MonitorToken
from reliability.selectors import fault_codes
from reliability.services import access, clock, monitors

SCHEME = b"bearer"


class MonitorAuthentication(BaseAuthentication):
    """'Authorization: Bearer <monitor token>'; nobody else's token."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, MonitorToken]:
        """Return the token that came. Raises AuthenticationFailed."""
        parts = get_authorization_header(request).split()
        text = parts[1].decode("latin-1") if len(parts) == 2 and parts[0].lower() == SCHEME else ""
        try:
            return AnonymousUser(), monitors.sender(text)
        except access.TokenRefused as error:
            raise AuthenticationFailed(f"{error.message} {error.hint}") from error

    def authenticate_header(self, request: Request) -> str:
        """Return what makes a refusal 401."""
        return "Bearer"


class MonitorAuthenticationScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema names it."""

    target_class = MonitorAuthentication
    name = "monitorToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return its kind."""
        return {"type": "http", "scheme": "bearer", "description": "A monitor's token."}


class IsMonitor(BasePermission):
    """Whoever has a monitor's token."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether one was given."""
        return isinstance(request.auth, MonitorToken)


class MonitorJSONParser(SmallJSONParser):
    """JSON as large as what agents may send."""

    def __init__(self) -> None:
        self.most_bytes = settings.MAX_INGEST_BYTES


class ExpositionParser(BaseParser):
    """A Prometheus text exposition."""

    media_type = "text/plain"

    def parse(  # type: ignore[override]  # what was parsed is a text, no mapping
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> str:
        """Return the text. Raises ParseError or TooLarge."""
        most = settings.MAX_INGEST_BYTES
        raw = stream.read(most + 1)
        if len(raw) > most:
            raise TooLarge(f"The body is larger than {most} bytes. Send fewer nodes or metrics at once.")
        try:
            return str(raw.decode())
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ParseError(f"line {line}: is no UTF-8. Send text as the exporter gives it.") from error


class OpenMetricsParser(ExpositionParser):
    """The same under its newer name."""

    media_type = "application/openmetrics-text"


class MonitorRefusal(serializers.Serializer[Any]):
    """What was said of one node and not taken."""

    node = serializers.CharField()
    status = serializers.IntegerField(help_text="404 unknown node, 403 not this token's node, 429 send it later")
    message = serializers.CharField()
    hint = serializers.CharField()
    first = serializers.CharField(help_text="the first place of it in the body")
    items = serializers.IntegerField()


class MonitorAnswer(serializers.Serializer[Any]):
    """What came of it."""

    findings = serializers.IntegerField(help_text="what is new, counted")
    nodes = serializers.DictField(child=serializers.IntegerField(), help_text="node -> what is new of it")
    no_news = serializers.DictField(child=serializers.IntegerField(), help_text="why it is no news -> how often")
    ignored = serializers.DictField(child=serializers.IntegerField(), help_text="what means nothing here -> how often")
    refused = MonitorRefusal(many=True)


class MonitorFindings(APIView):
    """Take in what a monitor sees."""

    authentication_classes = [MonitorAuthentication]
    permission_classes = [IsMonitor]
    parser_classes = [ExpositionParser, OpenMetricsParser, MonitorJSONParser]
    renderer_classes = [JSONRenderer]

    @extend_schema(
        summary="What a monitor sees",
        description=(
            "The metrics of DCGM's exporter as text (`text/plain`), or as JSON what gpud answers to /v1/states, "
            "/v1/events and /v1/info, or a Status of the node problem detector. Only what is new becomes a finding; "
            "sent again it counts once. See docs/monitors.md."
        ),
        parameters=[OpenApiParameter("node", str, description="the node that all of it is of")],
        request={"text/plain": OpenApiTypes.STR, "application/json": OpenApiTypes.OBJECT},
        responses={
            200: MonitorAnswer,
            400: OpenApiResponse(OpenApiTypes.OBJECT, description="line or field -> [what is wrong. What is right.]"),
            401: OpenApiResponse(description="no token of a monitor"),
            404: OpenApiResponse(description="nothing of it is of a node known here"),
            413: OpenApiResponse(description="larger than STEPKEEPER_MAX_INGEST_BYTES"),
        },
    )
    def post(self, request: Request) -> Response:
        """Return what came of it."""
        unknown = sorted(set(request.query_params) - {"node"})
        if unknown:
            raise ValidationError({unknown[0]: ["is no parameter. There is: node."]})
        assert isinstance(request.auth, MonitorToken)
        try:
            said = _said(request.data)
            named = request.query_params.get("node", "")
            return Response(monitors.take(request.auth, said, named=named, now=clock.now()))
        except InvalidInput as error:
            told = error.message.removeprefix(f"{error.field}: ")
            raise ValidationError({error.field: [f"{told}. {error.hint}".strip()]}) from error
        except monitors.UnknownNode as error:
            raise NotFound(f"{error.message} {error.hint}") from error


def _said(data: Any) -> Said:
    return read_text(data) if isinstance(data, str) else read_json(data, fault_codes.matcher())
