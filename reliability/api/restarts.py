"""A job's restart budgets, back-off, ended attempts and skipped batches over REST. Only reads."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api.parameters import FormatNegotiation
from reliability.api.resources import MayView
from reliability.models import AttemptEnd, BatchSkip, Job
from reliability.selectors.restarts import restarts
from reliability.services import clock


class AttemptEndSerializer(serializers.ModelSerializer[AttemptEnd]):
    """How an attempt ended. `last_step` is what the rank that failed told, `reached` the newest step of any rank."""

    class Meta:
        model = AttemptEnd
        fields = (
            "number", "at", "code", "cause", "node", "rank", "start_epoch", "start_step", "reached", "last_step",
            "saved", "counts", "why",
        )  # fmt: skip


class BatchSkipSerializer(serializers.ModelSerializer[BatchSkip]):
    """A batch that all ranks leave out, or were offered to. `step` is the step it belongs to."""

    class Meta:
        model = BatchSkip
        fields = ("id", "step", "state", "reason", "digest", "offered_at", "decided_by", "decided_at", "note")


class RestartCauseSerializer(serializers.Serializer[Any]):
    """The budget of one cause: class and family of the fault's code."""

    cause = serializers.CharField()
    spent = serializers.IntegerField()
    left = serializers.IntegerField()


class SkippingSerializer(serializers.Serializer[Any]):
    """What the present attempt was told to leave out. `unread_by`: ranks past their first step that never asked."""

    epoch = serializers.IntegerField()
    steps = serializers.ListField(child=serializers.IntegerField())
    read_by = serializers.ListField(child=serializers.IntegerField())
    unread_by = serializers.ListField(child=serializers.IntegerField())


class RestartsSerializer(serializers.Serializer[Any]):
    """Restarts of a job. `first_s` and `longest_s` bound the back-off; `waits_until` is null while none is waited."""

    budget = serializers.IntegerField()
    first_s = serializers.FloatField()
    longest_s = serializers.FloatField()
    waits_until = serializers.DateTimeField(allow_null=True)
    causes = RestartCauseSerializer(many=True)
    attempts = AttemptEndSerializer(source="ends", many=True)
    skips = BatchSkipSerializer(many=True)
    skipping = SkippingSerializer(source="told")
    class_actions = serializers.DictField(source="actions", child=serializers.CharField())


class Restarts(APIView):
    """What a job may still spend on restarts, how its attempts ended, and which batches it leaves out."""

    queryset = Job.objects.none()
    permission_classes = [MayView]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation

    @extend_schema(summary="Restarts of a job", responses=RestartsSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return it as of now."""
        job = get_object_or_404(Job, name=name)
        return Response(RestartsSerializer(restarts(job, now=clock.now())).data)
