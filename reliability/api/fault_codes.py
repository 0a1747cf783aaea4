"""The fault-code table over REST: read by all, tried by all, changed by those who may edit it."""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api.parameters import FormatNegotiation
from reliability.api.parsers import SmallJSONParser
from reliability.api.resources import MayView
from reliability.domain.faults import Action, FaultClass, Matcher, Origin, Severity, Told
from reliability.errors import InvalidInput, StaleProposal
from reliability.models import FaultCodeChange
from reliability.models.nodes import choices
from reliability.selectors import fault_codes
from reliability.services import fault_codes as changes

MOST_LINES = 1000
QUERIES = ("words", "family", "class", "action")
WRONG = OpenApiResponse(OpenApiTypes.OBJECT, description="field -> [what is wrong. What would be right.]")


class Conflict(APIException):
    """Somebody changed it meanwhile."""

    status_code = status.HTTP_409_CONFLICT


class MayEdit(MayView):
    """Reading needs what reading needs; changing needs the permission to edit the table."""

    perms_map = {
        **MayView.perms_map,
        **{method: ["%(app_label)s.edit_fault_codes"] for method in ("POST", "PATCH", "DELETE")},
    }


class MayTry(MayView):
    """Trying lines keeps nothing, so it needs what reading needs."""

    perms_map = {**MayView.perms_map, "POST": ["%(app_label)s.view_%(model_name)s"]}


class FaultCodeSerializer(serializers.Serializer[Any]):
    """One row of the table in force."""

    code = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a value named so, not where a field reads from
    fault_class = serializers.ChoiceField(choices(FaultClass))
    severity = serializers.ChoiceField(choices(Severity))
    action = serializers.ChoiceField(choices(Action))
    meaning = serializers.CharField()
    advice = serializers.CharField()
    origin = serializers.ChoiceField(choices(Origin))
    weight = serializers.CharField()
    debounce_s = serializers.FloatField()
    fields_of_lines = serializers.ListField(child=serializers.CharField())
    clears = serializers.CharField(allow_blank=True)
    enabled = serializers.BooleanField()
    examples = serializers.ListField(child=serializers.CharField())
    version = serializers.IntegerField(help_text="how often it was changed here; 0: as shipped")


class FaultCodeChangeSerializer(serializers.Serializer[Any]):
    """What is to be changed, and why. Values that are not given stay as they are."""

    reason = serializers.CharField(max_length=500)
    version = serializers.IntegerField(required=False, help_text="the version you saw; 409 when there is a newer one")
    enabled = serializers.BooleanField(required=False, help_text="alone: switch the code off or on")
    fault_class = serializers.ChoiceField(choices(FaultClass), required=False)
    severity = serializers.ChoiceField(choices(Severity), required=False)
    action = serializers.ChoiceField(choices(Action), required=False)
    meaning = serializers.CharField(required=False)
    advice = serializers.CharField(required=False)
    debounce_s = serializers.FloatField(required=False)
    origin = serializers.ChoiceField(choices(Origin), required=False)
    phrase = serializers.CharField(required=False, allow_blank=True, help_text="{name} is one word, * is anything")


class JudgedLinesSerializer(serializers.Serializer[Any]):
    """Lines to try."""

    lines = serializers.ListField(child=serializers.CharField(allow_blank=True), max_length=MOST_LINES)
    origin = serializers.ChoiceField(choices(Origin), required=False, allow_null=True)


class _Table(APIView):
    """What the addresses of the table share."""

    queryset = FaultCodeChange.objects.none()
    permission_classes = [MayEdit]
    parser_classes = [SmallJSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation


def _shown(code: str) -> dict[str, Any]:
    row = fault_codes.table().get(code)
    if row is None:
        raise Http404
    change = fault_codes.in_force().get(code)
    return _values(fault_codes.as_values(row), change.version if change else 0)


def _values(values: dict[str, Any], version: int) -> dict[str, Any]:
    named = {"class": "fault_class", "fields": "fields_of_lines"}
    return {**{named.get(name, name): value for name, value in values.items()}, "version": version}


def _body(request: Request) -> dict[str, Any]:
    if not isinstance(request.data, Mapping):
        raise ValidationError({"non_field_errors": ["Give one JSON object."]})
    return {str(name): value for name, value in request.data.items()}


def _kept(work: Callable[[], FaultCodeChange]) -> FaultCodeChange:
    try:
        return work()
    except InvalidInput as error:
        told = error.message.removeprefix(f"{error.field}: ")
        raise ValidationError({error.field: [f"{told}. {error.hint}".strip()]}) from error
    except StaleProposal as error:
        raise Conflict(f"{error.message} {error.hint}") from error


def _by(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """Take reason and version out of a body, and say who asks. Raises ValidationError."""
    reason, version = body.pop("reason", ""), body.pop("version", None)
    if not isinstance(reason, str):
        raise ValidationError({"reason": ["It is text. Say why."]})
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise ValidationError({"version": ["It is a whole number. Give the version you saw, or leave it out."]})
    return {"by": request.user.get_username(), "reason": reason, "seen_version": version}


class FaultCodes(_Table):
    """All codes in force."""

    @extend_schema(
        summary="Fault codes",
        parameters=[OpenApiParameter(name, str, description="narrows the list") for name in QUERIES],
        responses={200: FaultCodeSerializer(many=True), 400: WRONG},
    )
    def get(self, request: Request) -> Response:
        """Return the codes that match."""
        unknown = sorted(set(request.query_params) - {*QUERIES, "format"})
        if unknown:
            raise ValidationError({unknown[0]: [f"is no parameter. There are: {', '.join(QUERIES)}."]})
        asked = {name.replace("class", "fault_class"): request.query_params.get(name, "") for name in QUERIES}
        versions = {code: change.version for code, change in fault_codes.in_force().items()}
        rows = fault_codes.searched(fault_codes.table(), **asked)
        return Response([_values(fault_codes.as_values(row), versions.get(row.code, 0)) for row in rows])

    @extend_schema(
        summary="Add a fault code",
        description="`code` beside the values of a change; what it means and does is needed.",
        request=FaultCodeChangeSerializer,
        responses={201: FaultCodeSerializer, 400: WRONG},
    )
    def post(self, request: Request) -> Response:
        """Add a code that is new."""
        body = _body(request)
        code, told = body.pop("code", ""), _by(request, body)
        if not isinstance(code, str) or code in fault_codes.table():
            raise ValidationError({"code": ["It is there already, or no name. Change it at its own address."]})
        _kept(lambda: changes.change(code, values=body, **told))
        return Response(_shown(code), status=status.HTTP_201_CREATED)


class FaultCodeOne(_Table):
    """One code."""

    @extend_schema(summary="A fault code", responses={200: FaultCodeSerializer})
    def get(self, request: Request, code: str) -> Response:
        """Return the code with the history of its changes."""
        told = ("version", "kind", "values", "reason", "changed_by", "changed_at")
        history = [{name: getattr(each, name) for name in told} for each in fault_codes.history(code)]
        return Response({**_shown(code), "history": history})

    @extend_schema(
        summary="Change a fault code",
        request=FaultCodeChangeSerializer,
        responses={200: FaultCodeSerializer, 400: WRONG, 409: OpenApiResponse(description="changed meanwhile")},
    )
    def patch(self, request: Request, code: str) -> Response:
        """Change the values that are given, or switch the code off or on."""
        _shown(code)
        body = _body(request)
        told, on = _by(request, body), body.pop("enabled", None)
        if on is None:
            _kept(lambda: changes.change(code, values=body, **told))
        elif body or not isinstance(on, bool):
            raise ValidationError({"enabled": ["It is true or false, and comes alone. Change other values apart."]})
        else:
            _kept(lambda: changes.switch(code, on=on, **told))
        return Response(_shown(code))

    @extend_schema(
        summary="Take all changes of a fault code back",
        request=FaultCodeChangeSerializer,
        responses={204: None, 400: WRONG, 409: OpenApiResponse(description="changed meanwhile")},
    )
    def delete(self, request: Request, code: str) -> Response:
        """Make the code what it was when shipped; an added one is gone."""
        _shown(code)
        body = _body(request)
        _kept(lambda: changes.reset(code, **_by(request, body)))
        return Response(status=status.HTTP_204_NO_CONTENT)


class FaultCodeTrial(_Table):
    """What lines would come to. Nothing is kept."""

    permission_classes = [MayTry]

    @extend_schema(
        summary="Try lines of a log",
        description="One object for each line, in their order: null where it tells of no fault.",
        request=JudgedLinesSerializer,
        responses={200: OpenApiTypes.OBJECT, 400: WRONG},
    )
    def post(self, request: Request) -> Response:
        """Return what each line alone tells."""
        body = _body(request)
        lines, origin = body.get("lines"), body.get("origin")
        if not isinstance(lines, list) or len(lines) > MOST_LINES or not all(isinstance(each, str) for each in lines):
            raise ValidationError({"lines": [f"It is a list of at most {MOST_LINES} lines of text."]})
        if origin is not None and origin not in list(Origin):
            raise ValidationError({"origin": [f"It is one of {', '.join(Origin)}, or left out."]})
        matcher = fault_codes.matcher()
        found = (matcher.find(line, origin=Origin(origin) if origin else None) for line in lines)
        return Response({"findings": [_found(matcher, told) for told in found]})


def _found(matcher: Matcher, told: Told | None) -> dict[str, Any] | None:
    if told is None:
        return None
    row = matcher.table.lookup(told.code)
    return {
        "source": row.source,
        "code": told.code,
        "class": row.fault_class,
        "severity": row.severity,
        "action": row.action,
        "fields": dict(told.fields),
        "meaning": row.meaning,
        "advice": row.advice,
    }
