"""What the tiers of a job keep, and trial restores, over REST: read by all, set by those who operate jobs."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from reliability.api.parameters import FormatNegotiation
from reliability.api.parsers import SmallJSONParser
from reliability.api.resources import MayView
from reliability.domain import fields as f
from reliability.domain import retention as rules
from reliability.domain.retention import TierRule, Why
from reliability.domain.snapshots import Tier
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Job, Snapshot, TrialRestore, TrialSchedule
from reliability.models.nodes import choices
from reliability.selectors import retention as selected
from reliability.selectors import trials
from reliability.services import clock, retention, trial_restores

BODY = "non_field_errors"
RULED_TIERS = [(tier.value, tier.value) for tier in rules.RULED]
WHYS = choices(Why)
STATES = TrialRestore.State.choices
MOST_GOING = 100


class Conflict(APIException):
    """It cannot be done now."""

    status_code = status.HTTP_409_CONFLICT


class MayOperate(MayView):
    """Reading needs what reading needs; setting anything needs the permission to operate jobs."""

    perms_map = {
        **MayView.perms_map,
        "PUT": ["%(app_label)s.operate_job"],
        "POST": ["%(app_label)s.operate_job"],
    }


class RuleSerializer(serializers.Serializer[Any]):
    """What one tier keeps; 0 means no such wish, or no cap."""

    keep_newest = serializers.IntegerField(min_value=1)
    every_steps = serializers.IntegerField(min_value=0, required=False)
    keep_for_s = serializers.FloatField(min_value=0, required=False)
    cap_bytes = serializers.IntegerField(min_value=0, required=False)


class UseSerializer(RuleSerializer):
    """What one tier keeps, in words too, and what it holds; bytes of an SSD are those of one node."""

    keep_newest = serializers.IntegerField(source="rule.keep_newest")
    every_steps = serializers.IntegerField(source="rule.every_steps")
    keep_for_s = serializers.FloatField(source="rule.keep_for_s")
    cap_bytes = serializers.IntegerField(source="rule.cap_bytes")
    words = serializers.CharField()
    default = serializers.BooleanField()
    snapshots = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    going = serializers.IntegerField()


class GoingSerializer(serializers.Serializer[Any]):
    """A snapshot that goes from a tier, and why."""

    epoch = serializers.IntegerField(source="snapshot.epoch")
    step = serializers.IntegerField(source="snapshot.step")
    tier = serializers.ChoiceField(choices=RULED_TIERS)
    why = serializers.ChoiceField(choices=WHYS)
    words = serializers.CharField()
    size_bytes = serializers.IntegerField()


class RetentionSerializer(serializers.Serializer[Any]):
    """The ruled tiers, and what goes next: abandoned lines first, then the oldest first.

    `planned`: of a long ledger what goes is what the last round planned and was not removed yet, and more may follow.
    """

    ssd = UseSerializer()
    storage = UseSerializer()
    going = GoingSerializer(many=True)
    planned = serializers.BooleanField()


class RulesSerializer(serializers.Serializer[Any]):
    """The tiers whose rules are set; one that is left out keeps its own."""

    ssd = RuleSerializer(required=False)
    storage = RuleSerializer(required=False)


class TrialSerializer(serializers.ModelSerializer[TrialRestore]):
    """One trial restore. `result`: the copies that were read, that are bad and that could not be read."""

    job = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    node = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    epoch = serializers.IntegerField(source="snapshot.epoch", read_only=True)
    step = serializers.IntegerField(source="snapshot.step", read_only=True)
    state = serializers.ChoiceField(choices=STATES, read_only=True)

    class Meta:
        model = TrialRestore
        fields = (
            "id", "job", "snapshot", "epoch", "step", "node", "state", "reason", "result", "asked_by", "started_at",
            "ended_at",
        )  # fmt: skip


class ScheduleSerializer(serializers.Serializer[Any]):
    """When the newest stored snapshot is tried by itself; null for both: never."""

    every_hours = serializers.FloatField(allow_null=True, required=False)
    every_snapshots = serializers.IntegerField(allow_null=True, required=False)


class AskSerializer(serializers.Serializer[Any]):
    """Which snapshot is tried, by its id in the ledger; without one the newest that is whole on storage."""

    snapshot = serializers.IntegerField(required=False)


_RULE = f.record(
    {
        "keep_newest": (f.integer(least=1, most=rules.MOST_KEPT), True),
        "every_steps": (f.nullable(f.integer(most=rules.MOST_STEPS), 0), False),
        "keep_for_s": (f.nullable(f.number(least=0, most=rules.LONGEST_S), 0.0), False),
        "cap_bytes": (f.nullable(f.integer(most=rules.MOST_BYTES), 0), False),
    }
)
_SCHEDULE = f.record(
    {
        "every_hours": (f.nullable(f.number(least=0.1, most=trial_restores.MOST_HOURS)), False),
        "every_snapshots": (f.nullable(f.integer(least=1, most=trial_restores.MOST_SNAPSHOTS)), False),
    }
)
_ASK = f.record({"snapshot": (f.nullable(f.integer(least=1, most=2**62)), False)})
_BAD = {400: OpenApiResponse(OpenApiTypes.OBJECT, description="field -> [what is wrong. What would be right.]")}
_NOT_NOW = {409: OpenApiResponse(OpenApiTypes.OBJECT, description="why it cannot be done now")}


class OfJob(APIView):
    """What all of these share."""

    queryset: QuerySet[Any] = Snapshot.objects.none()
    permission_classes = [MayOperate]
    parser_classes = [SmallJSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = FormatNegotiation

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse parameters in the address: there are none, and to pass over one would answer another question."""
        super().initial(request, *args, **kwargs)
        unknown = sorted(set(request.query_params) - {"format"})
        if unknown:
            raise ValidationError({name: ["is no parameter here. There are none."] for name in unknown})

    def job(self) -> Job:
        """Return the job of the address."""
        return get_object_or_404(Job, name=self.kwargs["name"])

    def read(self, body: object, reader: f.Reader, known: set[str]) -> dict[str, Any]:
        """Return a body that was checked. Raises ValidationError that names the field."""
        if not isinstance(body, Mapping):
            raise ValidationError({BODY: ["Give one JSON object."]})
        _check_known(body, known)
        try:
            f.check_shows(body, "")
            return dict(reader(body, ""))
        except InvalidInput as error:
            raise _bad(error) from error


def _given(request: Request) -> object:
    """Return the body, or an empty object where nothing at all was sent."""
    sent = request.META.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in request.META
    return request.data if sent else {}


def _check_known(body: Mapping[str, Any], known: set[str], prefix: str = "") -> None:
    unknown = sorted(f"{prefix}{name}" for name in body if name not in known)
    if unknown:
        raise ValidationError({name: [f"Not a field here. One of: {', '.join(sorted(known))}."] for name in unknown})


def _bad(error: InvalidInput, prefix: str = "") -> ValidationError:
    field = f"{prefix}{error.field}".strip(".")
    return ValidationError({field or BODY: [f"{error.message.removeprefix(f'{error.field}: ')}. {error.hint}".strip()]})


class Retention(OfJob):
    """What the tiers of a job keep."""

    @extend_schema(summary="What the tiers of a job keep, and what goes next", responses=RetentionSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return it as of now."""
        return self._answer(self.job())

    @extend_schema(
        summary="Set what the tiers of a job keep",
        request=RulesSerializer,
        responses={200: RetentionSerializer, **_BAD},
    )
    def put(self, request: Request, name: str) -> Response:
        """Set the rules of the tiers that are given, all or none."""
        job, names = self.job(), {tier.value for tier in rules.RULED}
        raw = self.read(request.data, f.mapping, names)
        if not raw:
            raise ValidationError({BODY: [f"Give a rule for {' or '.join(sorted(names))}."]})
        given = {Tier(tier): self._rule(tier, value) for tier, value in raw.items()}
        try:
            retention.set_rules(job, given, by=request.user.get_username())
        except InvalidInput as error:
            raise _bad(error) from error
        return self._answer(job)

    def _rule(self, tier: str, value: object) -> TierRule:
        if isinstance(value, Mapping):
            _check_known(value, set(RuleSerializer().fields), f"{tier}.")
        if isinstance(value, Mapping) and "keep_newest" not in value:
            raise ValidationError({f"{tier}.keep_newest": ["is missing. Say how many snapshots stay, at least 1."]})
        try:
            return TierRule(**_RULE(value, tier))
        except InvalidInput as error:
            raise _bad(error) from error

    def _answer(self, job: Job) -> Response:
        outlook = selected.outlook(job, clock.now(), most=MOST_GOING)
        found = {use.tier.value: use for use in outlook.uses}
        return Response(RetentionSerializer({**found, "going": outlook.going, "planned": outlook.planned}).data)


class Trials(OfJob):
    """Trial restores of a job."""

    @extend_schema(summary="Trial restores of a job, the newest first", responses=TrialSerializer(many=True))
    def get(self, request: Request, name: str) -> Response:
        """Return the last hundred."""
        return Response(TrialSerializer(trials.trials_of(self.job(), 100), many=True).data)

    @extend_schema(
        summary="Try a snapshot on a standby",
        request=AskSerializer,
        responses={201: TrialSerializer, **_BAD, **_NOT_NOW},
    )
    def post(self, request: Request, name: str) -> Response:
        """Begin a trial; what comes of it is read later."""
        job = self.job()
        key = self.read(_given(request), _ASK, {"snapshot"})["snapshot"]
        chosen = None if key is None else Snapshot.objects.filter(pk=key).first()
        if key is not None and chosen is None:
            raise ValidationError({"snapshot": [f"There is no snapshot {key}. Take its id from the ledger."]})
        try:
            trial = trial_restores.begin(job, by=request.user.get_username(), snapshot=chosen)
        except InvalidInput as error:
            raise _bad(error) from error
        except ReliabilityError as error:
            raise Conflict(f"{error.message} {error.hint}".strip()) from error
        return Response(TrialSerializer(trial).data, status=status.HTTP_201_CREATED)


class Schedule(OfJob):
    """When snapshots of a job are tried by themselves."""

    @extend_schema(summary="When snapshots of a job are tried by themselves", responses=ScheduleSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return it; null for both: never."""
        kept = TrialSchedule.objects.filter(job=self.job()).first()
        return Response(ScheduleSerializer(_shown(kept)).data)

    @extend_schema(
        summary="Set when snapshots of a job are tried by themselves",
        request=ScheduleSerializer,
        responses={200: ScheduleSerializer, **_BAD},
    )
    def put(self, request: Request, name: str) -> Response:
        """Set it; what is left out is never."""
        given = self.read(request.data, _SCHEDULE, {"every_hours", "every_snapshots"})
        try:
            kept = trial_restores.set_schedule(self.job(), **given, by=request.user.get_username())
        except InvalidInput as error:
            raise _bad(error) from error
        return Response(ScheduleSerializer(_shown(kept)).data)


def _shown(kept: TrialSchedule | None) -> dict[str, Any]:
    return {
        "every_hours": kept.every_hours if kept else None,
        "every_snapshots": kept.every_snapshots if kept else None,
    }
