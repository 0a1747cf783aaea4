"""Plans over REST: what a period would give, asked without keeping anything, and the plans that were applied."""

from collections.abc import Mapping

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api import filters
from reliability.api.export import columns
from reliability.api.parameters import FormatNegotiation
from reliability.api.parsers import SmallJSONParser
from reliability.api.plan_serializers import RESULT, PlanAnswerSerializer, PlanRequestSerializer, PlanSerializer
from reliability.api.resources import NUMBER, MayView, Resource, Rows
from reliability.domain import fields
from reliability.domain.planner.answer import answer, as_json
from reliability.domain.planner.durations import shown
from reliability.domain.planner.reading import told
from reliability.errors import InvalidInput
from reliability.models import Job, Plan
from reliability.selectors import plan_history
from reliability.selectors.plan_request import asked
from reliability.services import clock

BODY = "non_field_errors"
EXAMPLE = '{"save_stall": "30s", "mtbf": "10h", "recovery": "10m", "target": 0.93}'


class MayPreview(MayView):
    """Asking keeps nothing, so it needs what reading needs."""

    perms_map = {**MayView.perms_map, "POST": ["%(app_label)s.view_%(model_name)s"]}


class Preview(APIView):
    """Answer what a job would gain from which period. Nothing is stored."""

    queryset = Plan.objects.none()
    permission_classes = [MayPreview]
    parser_classes = [SmallJSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation

    @extend_schema(
        summary="What a plan would give",
        description="Nothing is stored. Every mistake is told at once, under the name of its field.",
        request=PlanRequestSerializer,
        responses={
            200: PlanAnswerSerializer,
            400: OpenApiResponse(OpenApiTypes.OBJECT, description="field -> [what is wrong. What would be right.]"),
        },
    )
    def post(self, request: Request) -> Response:
        """Return the answer."""
        body = request.data
        if not isinstance(body, Mapping):
            raise ValidationError({BODY: [f"The body is {shown(body)}. Give one JSON object, such as {EXAMPLE}."]})
        values = {str(name): value for name, value in body.items() if name != "job"}
        found = asked(values, _job(body.get("job")), now=clock.now())
        if found.request is None or found.unused:
            raise ValidationError(_by_field([*found.errors, *found.unused]))
        try:
            return Response(as_json(answer(found.request), sources=found.sources))
        except InvalidInput as error:
            raise ValidationError(_by_field([error])) from error


def _by_field(errors: list[InvalidInput]) -> dict[str, list[str]]:
    told_by_field: dict[str, list[str]] = {}
    for error in errors:
        told_by_field.setdefault(error.field, []).append(told(error))
    return told_by_field


def _job(name: object) -> Job | None:
    """Return the job of that name, None for none. Raises ValidationError."""
    if name is None or name == "":
        return None
    try:
        found = Job.objects.filter(name=fields.name(name, "job")).first()
    except InvalidInput as error:
        raise ValidationError({"job": [f"{shown(name)} {told(error)}"]}) from error
    if found is None:
        names = ", ".join(Job.objects.values_list("name", flat=True)[:10]) or "none yet"
        raise ValidationError({"job": [f"There is no job {shown(name)}. There are: {names}."]})
    return found


@extend_schema_view(list=extend_schema(summary="Plans"), retrieve=extend_schema(summary="A plan"))
class Plans(Resource):
    """Plans that were applied, with their inputs and sources, the answer, and what was measured since."""

    queryset = Plan.objects.select_related("job").order_by("-applied_at", "-pk")
    serializer_class = PlanSerializer
    filterset_class = filters.PlanFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "job", "version", "automatic", "reason", "applied_by", "applied_at", "target", "planned_ettr",
        "measured_ettr=result.measured", "sd=result.sd", "window_s=result.window_s", "verdict=result.verdict",
        "period_s", "every_steps", "step_s", "from_step", "began_at", "ended_at",
        *(f"{name}=inputs.{name}.value" for name in (
            "save_stall", "mtbf", "recovery", "downtime", "drain", "drain_ssd", "node_share", "memory_share",
            "cluster_availability", "nodes", "standbys", "repair", "planned_stops_per_week",
        )),
    )  # fmt: skip

    def detailed(self, rows: Rows) -> Rows:
        """Return the plans with what came of each; only those in force are measured anew."""
        now = clock.now()
        for row in rows:
            setattr(row, RESULT, plan_history.result(row, now=now))
        return rows
