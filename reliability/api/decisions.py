"""Decisions and their verdicts over REST: read and exported by all, judged and had done by hand by those who may."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api.export import columns
from reliability.api.fault_codes import WRONG, Conflict
from reliability.api.filters import DecisionFilters
from reliability.api.resources import NUMBER, MayView, Resource
from reliability.api.retention import OfJob
from reliability.api.serializers import ACTIONS, NameField
from reliability.domain import fields as f
from reliability.domain.faults import FaultClass
from reliability.domain.precision import Source, Verdict
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Decision, DecisionVerdict
from reliability.models.decisions import MODES
from reliability.models.nodes import choices
from reliability.services import by_hand, decisions

VERDICTS = choices(Verdict)
SOURCES = choices(Source)
NOTE = f.nullable(f.text(most=decisions.LONGEST_NOTE), "")
GIVEN = f.record({"verdict": (f.one_of(*Verdict), True), "note": (NOTE, False)})


class VerdictSerializer(serializers.ModelSerializer[DecisionVerdict]):
    """What somebody, or what happened next, said of a decision."""

    verdict = serializers.ChoiceField(VERDICTS)
    source = serializers.ChoiceField(SOURCES)  # type: ignore[assignment]  # a value named so, not where one reads from

    class Meta:
        model = DecisionVerdict
        fields = ("verdict", "source", "rule", "by", "reason", "at")


class DecisionSerializer(serializers.ModelSerializer[Decision]):
    """A decision; `verdict` is the one that stands, empty while there is none. `mode` is how it was taken."""

    job = NameField()
    node = NameField()
    fault_class = serializers.ChoiceField(choices(FaultClass))
    action = serializers.ChoiceField(ACTIONS)
    mode = serializers.ChoiceField(MODES)
    verdict = serializers.ChoiceField(VERDICTS, allow_blank=True)
    verdicts = VerdictSerializer(many=True, read_only=True)

    class Meta:
        model = Decision
        fields = (
            "id", "incident", "job", "node", "epoch", "code", "family", "fault_class", "action", "mode", "group",
            "summary", "digest", "drill", "at", "by_hand", "by_hand_at", "verdict", "verdicts",
        )  # fmt: skip


@extend_schema_view(list=extend_schema(summary="Decisions"), retrieve=extend_schema(summary="A decision"))
class Decisions(Resource):
    """Decisions that judging came to, with how they were taken and whether they were right."""

    queryset = Decision.objects.select_related("job", "node").prefetch_related("verdicts")
    serializer_class = DecisionSerializer
    filterset_class = DecisionFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "incident", "job", "node", "epoch", "code", "family", "fault_class", "action", "mode", "group", "summary",
        "drill", "at", "by_hand", "verdict", "verdicts",
    )  # fmt: skip


def refused(error: ReliabilityError) -> APIException:
    """Return what the interface answers to an error of the services: 400 with the field, or 409."""
    if isinstance(error, InvalidInput):
        told = error.message.removeprefix(f"{error.field}: ")
        return ValidationError({error.field: [f"{told}. {error.hint}".strip()]})
    return Conflict(f"{error.message} {error.hint}".strip())


class GivenVerdictSerializer(serializers.Serializer[Any]):
    """Whether the decision was right."""

    verdict = serializers.ChoiceField(VERDICTS)
    note = serializers.CharField(required=False, max_length=decisions.LONGEST_NOTE)


class MayJudge(MayView):
    """Saying whether a decision was right needs its own permission."""

    perms_map = {**MayView.perms_map, "POST": [decisions.PERMISSION]}


class MayCarryOut(MayView):
    """Having something done by hand needs what operating jobs needs."""

    perms_map = {**MayView.perms_map, "POST": [by_hand.OPERATE]}


class GiveVerdict(OfJob):
    """A verdict on one decision."""

    queryset = Decision.objects.none()
    permission_classes = [MayJudge]

    @extend_schema(
        summary="Say whether a decision was right",
        request=GivenVerdictSerializer,
        responses={200: DecisionSerializer, 400: WRONG},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Keep a person's verdict; the decision as it is then."""
        found = get_object_or_404(Decision, pk=pk)
        given = self.read(request.data, GIVEN, {"verdict", "note"})
        try:
            decisions.give_verdict(found, given["verdict"], by=request.user, note=given["note"])
        except ReliabilityError as error:
            raise refused(error) from error
        return Response(DecisionSerializer(found).data)


class CarryOut(OfJob):
    """What was only observed, done by hand."""

    queryset = Decision.objects.none()
    permission_classes = [MayCarryOut]

    @extend_schema(
        summary="Do by hand what was only observed",
        description="A recovery is opened as a request that waits for approval; `failover` is its number, else null.",
        request=None,
        responses={200: OpenApiTypes.OBJECT, 409: OpenApiResponse(description="it was done, or is over")},
    )
    def post(self, request: Request, pk: str) -> Response:
        """Open the recovery, or make the hold."""
        found = get_object_or_404(Decision.objects.select_related("job", "node", "incident"), pk=pk)
        try:
            failover = by_hand.carry_out(found, by=request.user)
        except ReliabilityError as error:
            raise refused(error) from error
        return Response({"failover": failover.pk if failover else None, "digest": failover.digest if failover else ""})
