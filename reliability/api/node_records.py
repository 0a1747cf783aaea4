"""What is kept of nodes over REST: what happened to them, holds, quarantined hardware. Read by all roles."""

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from reliability.api.export import columns
from reliability.api.node_filters import EventFilters, HoldFilters, QuarantineFilters
from reliability.api.resources import NUMBER, Resource, Rows
from reliability.api.serializers import NameField
from reliability.models import Hold, NodeEvent, Quarantine, QuarantineOverride
from reliability.selectors import quarantined


class NodeEventSerializer(serializers.ModelSerializer[NodeEvent]):
    """What happened to a node."""

    node = NameField()

    class Meta:
        model = NodeEvent
        fields = ("id", "node", "kind", "at", "text", "actor", "detail")


class HoldRecordSerializer(serializers.ModelSerializer[Hold]):
    """A hold; one that is released says by whom and why."""

    node = NameField()

    class Meta:
        model = Hold
        fields = (
            "id", "node", "owner", "reason", "created_at", "expires_at", "released_at", "released_by", "release_note",
        )  # fmt: skip


class OverrideSerializer(serializers.ModelSerializer[QuarantineOverride]):
    """A node that is used in spite of a quarantine."""

    node = NameField()

    class Meta:
        model = QuarantineOverride
        fields = ("node", "note", "by", "at")


class QuarantineSerializer(serializers.ModelSerializer[Quarantine]):
    """Hardware that is refused. `found_again` are other nodes that carry it now, overridden ones too."""

    found_again = serializers.SerializerMethodField()
    overrides = OverrideSerializer(many=True, read_only=True)

    class Meta:
        model = Quarantine
        fields = (
            "id", "found_as", "identities", "reason", "incident", "found_again", "overrides", "created_at",
            "created_by", "released_at", "released_by", "release_note",
        )  # fmt: skip

    def get_found_again(self, row: Quarantine) -> list[str]:
        """Return names of nodes; none once it is released."""
        return [node.name for node in getattr(row, "met", ())]


@extend_schema_view(list=extend_schema(summary="Events of nodes"), retrieve=extend_schema(summary="An event of a node"))
class NodeEvents(Resource):
    """What happened to nodes, the newest first."""

    queryset = NodeEvent.objects.select_related("node")
    serializer_class = NodeEventSerializer
    filterset_class = EventFilters
    lookup_value_regex = NUMBER
    csv_columns = columns("id", "node", "kind", "at", "text", "actor")


@extend_schema_view(list=extend_schema(summary="Holds"), retrieve=extend_schema(summary="A hold"))
class Holds(Resource):
    """Holds that stand and that stood."""

    queryset = Hold.objects.select_related("node")
    serializer_class = HoldRecordSerializer
    filterset_class = HoldFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "node", "owner", "reason", "created_at", "expires_at", "released_at", "released_by", "release_note"
    )


@extend_schema_view(list=extend_schema(summary="Quarantines"), retrieve=extend_schema(summary="A quarantine"))
class Quarantines(Resource):
    """Hardware that is, or was, refused under any name."""

    queryset = Quarantine.objects.prefetch_related("overrides__node")
    serializer_class = QuarantineSerializer
    filterset_class = QuarantineFilters
    lookup_value_regex = NUMBER
    csv_columns = columns(
        "id", "found_as", "identities", "reason", "incident", "found_again", "created_at", "created_by",
        "released_at", "released_by", "release_note",
    )  # fmt: skip

    def detailed(self, rows: Rows) -> Rows:
        """Return the rows with the nodes that carry their hardware now."""
        met = quarantined.carriers(row for row in rows if row.released_at is None)
        for row in rows:
            row.met = met.get(row.pk, [])
        return rows
