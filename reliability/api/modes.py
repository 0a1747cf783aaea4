"""What is done by itself, and how precise the decisions about each code were, over REST."""

from collections.abc import Iterator
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api import export
from reliability.api.decisions import refused
from reliability.api.fault_codes import WRONG
from reliability.api.resources import MayView
from reliability.api.retention import OfJob
from reliability.domain import fields as f
from reliability.domain.modes import MOST_DECISIONS, Mode, Need, Reach
from reliability.domain.precision import Counts
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Decision, ModeRule
from reliability.models.decisions import MODES
from reliability.models.nodes import choices
from reliability.selectors import precision
from reliability.services import modes

SETS = "reliability.set_action_modes"
REACHES = choices(Reach)
NAME = f.nullable(f.text(most=80), "")
SCOPE: dict[str, tuple[f.Reader, bool]] = {
    "reach": (f.one_of(*Reach), True),
    "name": (NAME, False),
    "group": (NAME, False),
    "reason": (f.text(most=modes.LONGEST_REASON, least=1), True),
    "version": (f.nullable(f.integer()), False),
}
RULE: dict[str, tuple[f.Reader, bool]] = {
    **SCOPE,
    "mode": (f.one_of(*Mode), True),
    "needed_precision": (f.nullable(f.number(least=0, most=1)), False),
    "least_decisions": (f.nullable(f.integer(least=1, most=MOST_DECISIONS)), False),
    "unlocks_itself": (f.nullable(f.boolean, False), False),
}


class PrecisionSerializer(serializers.Serializer[Any]):
    """How often decisions were right. `lower_bound`: of the 95 % interval; null while none has a verdict."""

    code = serializers.CharField(allow_blank=True)
    decisions = serializers.IntegerField()
    right = serializers.IntegerField()
    wrong = serializers.IntegerField()
    unclear = serializers.IntegerField()
    missing = serializers.IntegerField()
    precision = serializers.FloatField(allow_null=True)
    lower_bound = serializers.FloatField(allow_null=True)


class ModeScopeSerializer(serializers.Serializer[Any]):
    """Which rule, and why."""

    reach = serializers.ChoiceField(REACHES)
    name = serializers.CharField(allow_blank=True, required=False, help_text="the code or family; empty for all")
    group = serializers.CharField(allow_blank=True, required=False, help_text="a failure domain; empty: all nodes")
    reason = serializers.CharField(max_length=modes.LONGEST_REASON)
    version = serializers.IntegerField(required=False, help_text="the version you saw; 409 when there is a newer one")


class GivenModeRuleSerializer(ModeScopeSerializer):
    """What is to be done by itself, and what evidence automatic action needs."""

    mode = serializers.ChoiceField(MODES)
    needed_precision = serializers.FloatField(required=False, allow_null=True, help_text="share of 1, as 0.95")
    least_decisions = serializers.IntegerField(required=False, allow_null=True)
    unlocks_itself = serializers.BooleanField(required=False)


class ModeRuleSerializer(GivenModeRuleSerializer):
    """A rule in force."""

    kind = serializers.ChoiceField(ModeRule.Kind.choices)
    evidence_since = serializers.DateTimeField(allow_null=True, help_text="only later decisions unlock it")
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField()


class MaySet(MayView):
    """Saying what is done by itself needs its own permission."""

    perms_map = {**MayView.perms_map, "POST": [SETS], "DELETE": [SETS]}


class ModeRules(OfJob):
    """The rules in force."""

    queryset = ModeRule.objects.none()
    permission_classes = [MaySet]

    @extend_schema(summary="What is done by itself: the rules in force", responses={200: ModeRuleSerializer(many=True)})
    def get(self, request: Request) -> Response:
        """Return the rules in force, from all codes to single ones."""
        return Response(ModeRuleSerializer(precision.in_force(), many=True).data)

    @extend_schema(
        summary="Say what is done by itself",
        request=GivenModeRuleSerializer,
        responses={200: ModeRuleSerializer, 400: WRONG, 409: OpenApiResponse(description="changed meanwhile")},
    )
    def post(self, request: Request) -> Response:
        """Set a rule; it holds at once."""
        given = self.read(request.data, f.record(RULE), set(RULE))
        try:
            rule = modes.set_mode(
                self._scope(given),
                mode=given["mode"],
                need=_need(given["needed_precision"], given["least_decisions"]),
                unlocks_itself=given["unlocks_itself"],
                by=request.user.get_username(),
                reason=given["reason"],
                seen_version=given["version"],
            )
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(ModeRuleSerializer(rule).data)

    @extend_schema(
        summary="Take a rule back",
        request=ModeScopeSerializer,
        responses={204: None, 400: WRONG, 409: OpenApiResponse(description="changed meanwhile")},
    )
    def delete(self, request: Request) -> Response:
        """Take a rule back, so that a wider one decides, or none."""
        given = self.read(request.data, f.record(SCOPE), set(SCOPE))
        who = {"by": request.user.get_username(), "reason": given["reason"], "seen_version": given["version"]}
        try:
            modes.take_back(self._scope(given), **who)
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(status=status.HTTP_204_NO_CONTENT)

    @staticmethod
    def _scope(given: dict[str, Any]) -> modes.Scope:
        return modes.read_scope(given["reach"], given["name"], given["group"])


def _need(share: float | None, least: int | None) -> Need | None:
    """Return the evidence that is asked for. Raises InvalidInput when only half of it is given."""
    if share is None and least is None:
        return None
    if share is None or least is None:
        missing = "least_decisions" if least is None else "needed_precision"
        raise InvalidInput(missing, "is missing", hint="Give needed_precision and least_decisions, or neither.")
    return Need(precision=share, decisions=least)


class CodePrecision(OfJob):
    """How precise the decisions about each code were."""

    queryset = Decision.objects.none()
    permission_classes = [MayView]
    renderer_classes = [JSONRenderer, export.CsvRenderer]
    csv_columns = export.columns(*PrecisionSerializer().fields)

    @extend_schema(
        summary="Precision of each fault code",
        parameters=[OpenApiParameter("format", str, description="json or csv")],
        responses={200: PrecisionSerializer(many=True)},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Return the counts of every code that was ever decided on, drills apart."""
        if request.accepted_renderer.format == export.CsvRenderer.format:
            return export.response(request._request, export.lines(_rows(), self.csv_columns), name="precision")
        return Response(list(_rows()))


def _rows() -> Iterator[dict[str, Any]]:
    for code, counts in sorted(precision.counts_by_code().items()):
        yield {"code": code, **_told(counts)}


def _told(counts: Counts) -> dict[str, Any]:
    return {
        "decisions": counts.total,
        "right": counts.right,
        "wrong": counts.wrong,
        "unclear": counts.unclear,
        "missing": counts.missing,
        "precision": counts.precision,
        "lower_bound": counts.lower_bound,
    }
