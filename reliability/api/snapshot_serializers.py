"""The JSON form of the ledger: a snapshot on each tier, one copy, and what would be lost now."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from reliability.domain import ledger
from reliability.domain.ledger import Standing
from reliability.domain.snapshots import Tier
from reliability.models import Snapshot, SnapshotCopy, SnapshotEvent
from reliability.models.nodes import choices
from reliability.selectors.ledger_pages import HeldBack
from reliability.selectors.ledger_rows import Cell, LedgerRow
from reliability.selectors.progress import JobLine, Risk

LINE = "ledger_line"
"""Attribute of a snapshot row: its LedgerRow."""

STANDINGS = choices(Standing)
TIERS = choices(Tier)
"""One name in the schema for all fields that hold a standing, and for all that hold a tier."""


class NameField(serializers.SlugRelatedField[Any]):
    """A related object by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="name", read_only=True, **options)


class TierSerializer(serializers.Serializer[Cell]):
    """A snapshot on one tier. Numbers are of ranks; durations of the slowest rank, in seconds.

    `shards`: ranks whose shard can be read there; `superseded`: saves passed over since the one before.
    """

    state = serializers.ChoiceField(choices=STANDINGS, source="standing")
    shards = serializers.IntegerField(source="ranks")
    complete = serializers.BooleanField()
    complete_at = serializers.DateTimeField(allow_null=True, help_text="since when every rank is there; null while not")
    verified = serializers.IntegerField()
    trial_restored = serializers.IntegerField()
    corrupt = serializers.IntegerField()
    lost = serializers.IntegerField()
    removed = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    stall_s = serializers.FloatField(allow_null=True)
    drain_s = serializers.FloatField(allow_null=True)
    bytes_per_s = serializers.FloatField(source="throughput", allow_null=True)
    superseded = serializers.IntegerField()


_INSTANT = serializers.DateTimeField()


def told(cell: Cell) -> dict[str, Any]:
    """Return the fields of TierSerializer; written out, because a page has hundreds of these."""
    return {
        "state": cell.standing.value,
        "shards": cell.ranks,
        "complete": cell.complete,
        "complete_at": _INSTANT.to_representation(cell.complete_at) if cell.complete and cell.complete_at else None,
        "verified": cell.verified,
        "trial_restored": cell.trial_restored,
        "corrupt": cell.corrupt,
        "lost": cell.lost,
        "removed": cell.removed,
        "size_bytes": cell.size_bytes,
        "stall_s": cell.stall_s,
        "drain_s": cell.drain_s,
        "bytes_per_s": cell.throughput,
        "superseded": cell.superseded,
    }


class SnapshotSerializer(serializers.ModelSerializer[Snapshot]):
    """A snapshot and where its shards lie. `in_line`: the history that goes on contains it.

    `held`: ranks that can be read from any tier, `durable`: from an SSD or storage; `ranks` are all.
    """

    job = NameField()
    ranks = serializers.IntegerField(source="job.world_size", read_only=True)
    in_line = serializers.SerializerMethodField()
    tiers = serializers.SerializerMethodField()

    class Meta:
        model = Snapshot
        fields: tuple[str, ...] = (
            "id", "job", "epoch", "step", "created_at", "in_line", "ranks", "held", "durable", "distrusted",
            "distrust_reason", "tiers",
        )  # fmt: skip

    @staticmethod
    def _line(snapshot: Snapshot) -> LedgerRow:
        line: LedgerRow = getattr(snapshot, LINE)  # counted by the resource for all rows at once
        return line

    def get_in_line(self, snapshot: Snapshot) -> bool:
        """Return whether the history that goes on contains it."""
        return self._line(snapshot).current

    @extend_schema_field(serializers.DictField(child=TierSerializer()))
    def get_tiers(self, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
        """Return how it stands on each tier."""
        return {cell.tier.value: told(cell) for cell in self._line(snapshot).cells}


class EventOfSnapshotSerializer(serializers.ModelSerializer[SnapshotEvent]):
    """What happened to copies after their commit."""

    node = NameField()
    state = serializers.ChoiceField(choices=STANDINGS, source="target")

    class Meta:
        model = SnapshotEvent
        fields = ("at", "tier", "node", "ranks", "state", "sentence")


class SnapshotDetailSerializer(SnapshotSerializer):
    """A snapshot with its events, oldest first."""

    events = EventOfSnapshotSerializer(many=True, read_only=True)

    class Meta(SnapshotSerializer.Meta):
        fields = (*SnapshotSerializer.Meta.fields, "events")


class CopySerializer(serializers.ModelSerializer[SnapshotCopy]):
    """One rank's shard on one tier. `node` is null on storage; `problem` says why it is corrupt, lost or removed."""

    node = NameField()
    state = serializers.SerializerMethodField()
    bytes_per_s = serializers.SerializerMethodField()

    class Meta:
        model = SnapshotCopy
        fields = (
            "rank", "tier", "node", "state", "problem", "size_bytes", "digest", "path", "stall_s", "drain_s",
            "bytes_per_s", "superseded", "committed_at", "verified_at", "trial_restored_at",
        )  # fmt: skip

    @extend_schema_field(serializers.ChoiceField(choices=STANDINGS))
    def get_state(self, copy: SnapshotCopy) -> str:
        """Return how it stands."""
        return ledger.of_copy(
            copy.state,
            verified=copy.verified_at is not None,
            trial_restored=copy.trial_restored_at is not None,
            in_line=self.context.get("in_line", True),
        ).value

    def get_bytes_per_s(self, copy: SnapshotCopy) -> float | None:
        """Return the rate at which it became durable."""
        return ledger.throughput(copy.size_bytes, copy.drain_s)


class LossSerializer(serializers.Serializer[Risk]):
    """What a loss would cost: steps to make again, their time, the step to go on from (0: the beginning), its age."""

    node = serializers.CharField(allow_blank=True)
    restore_step = serializers.IntegerField(allow_null=True)
    steps = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    age_s = serializers.SerializerMethodField()

    def get_age_s(self, risk: Risk) -> float | None:
        """Return the seconds since that restore point was taken."""
        now: datetime = self.context["now"]
        return max(0.0, (now - risk.since).total_seconds()) if risk.since else None


class HeldBackSerializer(serializers.Serializer[HeldBack]):
    """The newest snapshot that is not restorable yet, and the ranks that it lacks."""

    step = serializers.IntegerField(source="snapshot.step")
    epoch = serializers.IntegerField(source="snapshot.epoch")
    ranks = serializers.ListField(child=serializers.IntegerField())
    nodes = serializers.ListField(child=serializers.CharField())


class RiskSerializer(serializers.Serializer[Any]):
    """Work at risk of a job: when a process dies, and when a node is lost."""

    job = serializers.CharField(source="line.job.name")
    at = serializers.DateTimeField(source="now")
    process = serializers.SerializerMethodField()
    nodes = serializers.SerializerMethodField()
    held_back = HeldBackSerializer(allow_null=True)

    @extend_schema_field(LossSerializer())
    def get_process(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return what the death of a process would cost."""
        line: JobLine = found["line"]
        return dict(LossSerializer(line.process_risk, context=found).data)

    @extend_schema_field(LossSerializer(many=True))
    def get_nodes(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what the loss of each node would cost."""
        line: JobLine = found["line"]
        return [dict(LossSerializer(each, context=found).data) for each in line.node_risks]
