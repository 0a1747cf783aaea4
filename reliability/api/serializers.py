"""The JSON form of nodes, jobs, incidents and failovers. Reads only; secrets are never among it."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from reliability.domain.failover import State
from reliability.domain.faults import Action
from reliability.domain.goodput import lost_steps, totals
from reliability.models import Failover, FailoverEvent, Finding, Hold, Job, Node, NodeCheck, Rank, Slot
from reliability.models.nodes import choices
from reliability.selectors import core, node_history
from reliability.selectors.stages import by_state

ACTIONS = choices(Action)
"""One name in the schema for all fields that hold an action."""


class NameField(serializers.SlugRelatedField[Any]):
    """A related object by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="name", read_only=True, **options)


class HoldSerializer(serializers.ModelSerializer[Hold]):
    """Why a node is not used."""

    class Meta:
        model = Hold
        fields = ("id", "owner", "reason", "created_at", "expires_at")


class HealthCauseSerializer(serializers.Serializer[Any]):
    """Why a node is in its condition, and what clears it; instants in seconds since 1970."""

    key = serializers.CharField()
    state = serializers.CharField(help_text="the health it makes")
    text = serializers.CharField()
    clears = serializers.CharField()
    since = serializers.FloatField()
    ended_at = serializers.FloatField(allow_null=True)


class NodeCheckSerializer(serializers.ModelSerializer[NodeCheck]):
    """A standing check. `state`: passes, fails, no result, out of date or awaited; only the first is well."""

    state = serializers.SerializerMethodField()

    class Meta:
        model = NodeCheck
        fields = ("name", "state", "ok", "reason", "since", "checked_at", "limit_s", "measured")

    def get_state(self, row: NodeCheck) -> str:
        """Return what it says now."""
        return node_history.check_state(row, timezone.now())


class NodeSerializer(serializers.ModelSerializer[Node]):
    """A node. `jobs` are those whose ranks it runs, `holds` those that are in force, `causes` the worst first."""

    causes = HealthCauseSerializer(source="health_causes", many=True, read_only=True)
    checks = NodeCheckSerializer(many=True, read_only=True)
    quarantines = serializers.SerializerMethodField()
    jobs = serializers.SerializerMethodField()
    holds = HoldSerializer(source="open_holds", many=True, read_only=True)

    class Meta:
        model = Node
        fields = (
            "name", "role", "tier", "preemptible", "failure_domain", "health", "health_reason", "health_since",
            "causes", "checks", "quarantines", "jobs", "holds",
            "runtime", "address", "agent_version", "host_facts", "hardware_ids", "spooled", "disks", "registered_at",
            "last_seen_at",
        )  # fmt: skip

    def get_quarantines(self, node: Node) -> list[int]:
        """Return the quarantines that keep it from use."""
        return [each.number for each in getattr(node, "barred", ())]

    def get_jobs(self, node: Node) -> list[str]:
        """Return names of jobs."""
        running = node.active_slots  # type: ignore[attr-defined] # fetched ahead by the resource
        return sorted({slot.job.name for slot in running})


class SlotSerializer(serializers.ModelSerializer[Slot]):
    """Which node has which place."""

    node = NameField()

    class Meta:
        model = Slot
        fields = ("index", "node")


class RankSerializer(serializers.ModelSerializer[Rank]):
    """How far a rank is. `step_s` is the recent duration of a step in seconds."""

    class Meta:
        model = Rank
        fields = ("rank", "state", "epoch", "step", "step_s", "loss", "progress_at", "exit_code")


class JobSerializer(serializers.ModelSerializer[Job]):
    """A job with its slots and ranks. `step` is that of the slowest rank; the job's own environment is not shown."""

    world_size = serializers.IntegerField(read_only=True)
    step = serializers.SerializerMethodField()
    slots = SlotSerializer(many=True, read_only=True)
    ranks = RankSerializer(many=True, read_only=True)

    class Meta:
        model = Job
        fields = (
            "name", "state", "state_reason", "nodes", "ranks_per_node", "world_size", "epoch", "step", "runtime",
            "image", "approval", "unknown_action", "lease_rule", "class_actions", "restart_budget", "every_steps",
            "snapshot_folder", "warn_full_within_s", "warn_free_share", "created_by", "created_at", "started_at",
            "ended_at", "slots", "ranks",
        )  # fmt: skip

    def get_step(self, job: Job) -> int | None:
        """Return the last step that every rank has finished, None while one has not begun."""
        steps = [rank.step for rank in job.ranks.all()]
        known = [step for step in steps if step is not None]
        return min(known) if known and len(known) == len(steps) else None


class FindingSerializer(serializers.ModelSerializer[Finding]):
    """One observation."""

    node = NameField()

    class Meta:
        model = Finding
        fields = (
            "code", "node", "rank", "epoch", "fault_class", "action", "severity", "evidence", "count", "found_at",
            "last_at",
        )  # fmt: skip


class EventSerializer(serializers.ModelSerializer[FailoverEvent]):
    """One transition."""

    class Meta:
        model = FailoverEvent
        fields = ("at", "source", "event", "target", "sentence", "actor")


class StageSerializer(serializers.Serializer[Any]):
    """A stage of a recovery and its seconds."""

    stage = serializers.ChoiceField(choices=[state.value for state in State])
    seconds = serializers.FloatField()


class FailoverSerializer(serializers.ModelSerializer[Failover]):
    """A failover, its events, and where its time went.

    `stages` are in order, `stage_seconds` the sum of each. `recovery_s` runs from the first finding to the first step
    of every rank; null unless it completed. `lost_steps` are done again; null when the step of the fault is unknown.
    `start_after`: the back-off ends then; null where none was needed.
    """

    job = NameField()
    failed_node = NameField()
    standby = NameField()
    fault_class = serializers.CharField(source="incident.fault_class", read_only=True)
    fault_code = serializers.CharField(source="incident.code", read_only=True)
    lost_steps = serializers.SerializerMethodField()
    judged_s = serializers.SerializerMethodField()
    recovery_s = serializers.SerializerMethodField()
    stages = serializers.SerializerMethodField()
    stage_seconds = serializers.SerializerMethodField()
    events = EventSerializer(many=True, read_only=True)

    class Meta:
        model = Failover
        fields = (
            "id", "job", "kind", "state", "state_since", "incident", "fault_class", "fault_code", "failed_node",
            "standby", "moves", "from_epoch", "to_epoch", "restore_epoch", "restore_step", "fault_step",
            "lost_steps", "attempt", "start_after", "decided_by", "decided_at", "decision_note", "fault_at",
            "created_at", "ended_at", "judged_s", "recovery_s", "stages", "stage_seconds", "events",
        )  # fmt: skip

    def get_lost_steps(self, failover: Failover) -> int | None:
        """Return how many finished steps are done again."""
        return lost_steps(failover.fault_step, failover.restore_step)

    def get_judged_s(self, failover: Failover) -> float:
        """Return the seconds from the first finding to the proposal."""
        return (failover.created_at - failover.fault_at).total_seconds()

    def get_recovery_s(self, failover: Failover) -> float | None:
        """Return the seconds from the first finding until every rank went on."""
        return core.recovery_seconds(failover)

    @extend_schema_field(StageSerializer(many=True))
    def get_stages(self, failover: Failover) -> list[dict[str, Any]]:
        """Return the stages passed so far."""
        return [{"stage": stage, "seconds": round(seconds, 3)} for stage, seconds in self._stages(failover)]

    def get_stage_seconds(self, failover: Failover) -> dict[str, float]:
        """Return the seconds of each stage over all its visits."""
        return {stage: round(seconds, 3) for stage, seconds in totals(self._stages(failover)).items()}

    @staticmethod
    def _stages(failover: Failover) -> list[tuple[str, float]]:
        return by_state(failover, list(failover.events.all()))[1:]
