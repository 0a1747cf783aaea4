"""Incidents over REST: lists and single ones, findings and timeline in pages and as CSV, closing, notes, release."""

from collections.abc import Callable
from typing import Any

from django.db.models import Count, Prefetch, QuerySet, Sum, prefetch_related_objects
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api import filters
from reliability.api.decisions import refused
from reliability.api.export import columns
from reliability.api.fault_codes import WRONG
from reliability.api.resources import NUMBER, MayView, Resource, Rows
from reliability.api.retention import OfJob
from reliability.api.serializers import ACTIONS, FindingSerializer, NameField
from reliability.domain import fields as f
from reliability.errors import ReliabilityError
from reliability.models import Finding, Incident
from reliability.selectors import incident_pages
from reliability.services import incident_closing

FIRST_FINDINGS = 20
"""So many findings stand in an incident itself; all of them are at findings/."""
TEXT = f.text(most=incident_closing.LONGEST_NOTE)


_NOTE = f.record({"note": (TEXT, True)})


class LineSerializer(serializers.Serializer[Any]):
    """One line of a timeline; `until` where it stands for several of the same."""

    at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    kind = serializers.CharField()
    text = serializers.CharField()
    actor = serializers.CharField()


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    """An incident with its first findings; `finding_count` rows there are, seen `count` times in all.

    `held_back`: so many nodes show the same (`reach`) that nothing is moved and no node is marked; `meanwhile` is done.
    """

    job = NameField()
    node = NameField()
    state = serializers.SerializerMethodField()
    meanwhile = serializers.ChoiceField(ACTIONS, allow_blank=True)
    findings = serializers.SerializerMethodField()
    finding_count = serializers.SerializerMethodField()
    count = serializers.SerializerMethodField()

    class Meta:
        model = Incident
        fields = (
            "id", "state", "job", "node", "epoch", "code", "fault_class", "action", "summary", "reasons", "held_back",
            "meanwhile", "reach", "released_by", "released_at", "waits_until", "opened_at", "closed_at",
            "close_reason", "finding_count", "count", "findings",
        )  # fmt: skip

    def get_state(self, incident: Incident) -> str:
        """Return open or closed."""
        return "open" if incident.closed_at is None else "closed"

    @extend_schema_field(FindingSerializer(many=True))
    def get_findings(self, incident: Incident) -> Any:
        """Return the first of them."""
        return FindingSerializer(incident.first_findings, many=True).data  # type: ignore[attr-defined]

    def get_finding_count(self, incident: Incident) -> int:
        """Return how many rows there are."""
        return int(incident.totals["rows"])  # type: ignore[attr-defined]

    def get_count(self, incident: Incident) -> int:
        """Return how often they were seen in all."""
        return int(incident.totals["counted"] or 0)  # type: ignore[attr-defined]


class IncidentDetailSerializer(IncidentSerializer):
    """An incident with its timeline and what a person does next."""

    timeline = serializers.SerializerMethodField()
    next = serializers.SerializerMethodField()

    class Meta:
        model = Incident
        fields = (*IncidentSerializer.Meta.fields, "next", "timeline")

    @extend_schema_field(LineSerializer(many=True))
    def get_timeline(self, incident: Incident) -> Any:
        """Return what happened, oldest first."""
        return LineSerializer(incident_pages.timeline(incident, incident.failovers.all()), many=True).data

    def get_next(self, incident: Incident) -> str:
        """Return it in words."""
        return incident_pages.next_action(incident, list(incident.failovers.all())).text


@extend_schema_view(list=extend_schema(summary="Incidents"), retrieve=extend_schema(summary="An incident"))
class Incidents(Resource):
    """Faults as judged, with the first findings behind them."""

    queryset = Incident.objects.select_related("job", "node")
    serializer_class = IncidentSerializer
    filterset_class = filters.IncidentFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "state", "job", "node", "epoch", "code", "fault_class", "action", "summary", "reasons", "held_back",
        "finding_count", "count", "opened_at", "closed_at", "close_reason",
    )  # fmt: skip

    def get_serializer_class(self) -> Any:
        """Return the form of one, or of many."""
        return IncidentDetailSerializer if self.action == "retrieve" else IncidentSerializer

    def detailed(self, rows: Rows) -> Rows:
        """Return the rows with how many findings they have and the first of them: two more queries for all."""
        keys = [row.pk for row in rows]
        totals = Finding.objects.filter(incident__in=keys).order_by().values("incident")
        known = {each["incident"]: each for each in totals.annotate(rows=Count("pk"), counted=Sum("count"))}
        for row in rows:
            row.totals = known.get(row.pk, {"rows": 0, "counted": 0})
        first = Finding.objects.select_related("node").order_by("pk")[:FIRST_FINDINGS]
        prefetch_related_objects(rows, Prefetch("findings", first, to_attr="first_findings"))
        return rows


@extend_schema_view(list=extend_schema(summary="All findings of an incident"))
class Findings(Resource):
    """Findings of one incident in the order in which they came."""

    queryset = Finding.objects.select_related("node")
    serializer_class = FindingSerializer
    filterset_class = filters.FindingFilters
    csv_columns = columns(
        "code", "node", "rank", "epoch", "fault_class", "action", "severity", "count", "evidence", "found_at",
        "last_at",
    )  # fmt: skip

    def get_queryset(self) -> QuerySet[Finding]:
        """Return those of the incident of the address."""
        incident = get_object_or_404(Incident, pk=self.kwargs["pk"])
        return super().get_queryset().filter(incident=incident).order_by("pk")


class MayClose(MayView):
    """Closing needs its own permission."""

    perms_map = {**MayView.perms_map, "POST": [incident_closing.CLOSING]}


class MayRelease(MayView):
    """Releasing has failovers proposed, so it needs what approving them needs."""

    perms_map = {**MayView.perms_map, "POST": [incident_closing.RELEASING]}


class NoteSerializer(serializers.Serializer[Any]):
    """Why, in words that are kept."""

    note = serializers.CharField(max_length=incident_closing.LONGEST_NOTE)


Work = Callable[..., None]


class OfIncident(OfJob):
    """What all of these share: a note, a service, and the incident as it is then."""

    queryset = Incident.objects.none()
    permission_classes = [MayClose]
    work: Work = incident_closing.close

    def done(self, request: Request, pk: str) -> Response:
        """Do it and return the incident."""
        found = get_object_or_404(Incident.objects.select_related("job", "node"), pk=pk)
        given = self.read(request.data, _NOTE, {"note"})
        try:
            type(self).work(found, by=request.user, note=given["note"])
        except ReliabilityError as error:
            raise refused(error) from error
        found.refresh_from_db()
        return Response(IncidentDetailSerializer(Incidents().detailed([found])[0]).data)


ANSWER = {200: IncidentDetailSerializer, 400: WRONG}


class Close(OfIncident):
    """Closing."""

    @extend_schema(summary="Close an incident", request=NoteSerializer, responses=ANSWER)
    def post(self, request: Request, pk: str) -> Response:
        """Close it with a note."""
        return self.done(request, pk)


class Reopen(OfIncident):
    """Opening again."""

    work = incident_closing.reopen

    @extend_schema(summary="Open an incident again", request=NoteSerializer, responses=ANSWER)
    def post(self, request: Request, pk: str) -> Response:
        """Open it again with a note."""
        return self.done(request, pk)


class Note(OfIncident):
    """A note."""

    work = incident_closing.add_note

    @extend_schema(summary="Add a note to an incident", request=NoteSerializer, responses=ANSWER)
    def post(self, request: Request, pk: str) -> Response:
        """Keep it in the timeline."""
        return self.done(request, pk)


class Release(OfIncident):
    """What is held back."""

    permission_classes = [MayRelease]
    work = incident_closing.release

    @extend_schema(summary="Release what is held back", request=NoteSerializer, responses=ANSWER)
    def post(self, request: Request, pk: str) -> Response:
        """Treat every node that shows it as faulty itself."""
        return self.done(request, pk)
