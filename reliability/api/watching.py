"""How a job gets on, over REST: the rule of a hang, each rank's phase and limit, stragglers. Only reads."""

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
from reliability.models import Job
from reliability.selectors.watch_pages import watching_of
from reliability.services import clock


class WatchedRankSerializer(serializers.Serializer[Any]):
    """One rank. `still_s`: since it finished a step or changed its phase, null while its node is not heard.
    `compute_s`: before it meets the others, null where the program does not tell; `usual_s`: median of its role."""

    rank = serializers.IntegerField(source="view.rank")
    node = serializers.CharField(source="view.node")
    step = serializers.IntegerField(source="view.step", allow_null=True)
    phase = serializers.CharField(source="view.phase", allow_blank=True)
    in_collective = serializers.BooleanField(source="view.waits")
    process_state = serializers.CharField(source="view.state", allow_blank=True)
    still_s = serializers.FloatField(source="view.still_s", allow_null=True)
    limit_s = serializers.FloatField()
    limit_why = serializers.CharField()
    role = serializers.CharField(allow_blank=True)
    compute_s = serializers.FloatField(allow_null=True)
    usual_s = serializers.SerializerMethodField()
    straggler = serializers.BooleanField()

    def get_usual_s(self, line: Any) -> float | None:
        """Return what is usual in its role, None where that is not known."""
        return None if line.lag is None else float(line.lag.usual_s)


class WatchingSerializer(serializers.Serializer[Any]):
    """How a job gets on. `state`: off, unknown, hang, quiet or going; `sentence` says it with the rule."""

    state = serializers.ChoiceField(choices=["off", "unknown", "hang", "quiet", "going"])
    sentence = serializers.CharField()
    suspicion = serializers.CharField(allow_blank=True)
    slow = serializers.CharField(source="slow.evidence", default="", allow_blank=True)
    stragglers = serializers.ListField(child=serializers.CharField())
    usual_step_s = serializers.FloatField(allow_null=True)
    ranks = WatchedRankSerializer(source="lines", many=True)


class Progress(APIView):
    """How a job gets on: whether it hangs by which rule, and how its ranks compare."""

    queryset = Job.objects.none()
    permission_classes = [MayView]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation

    @extend_schema(summary="Progress of a job", responses=WatchingSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return it as of now."""
        job = get_object_or_404(Job, name=name)
        return Response(WatchingSerializer(watching_of(job, now=clock.now())).data)
