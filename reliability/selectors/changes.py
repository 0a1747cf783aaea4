"""What changed since the last look? A cheap signature per live topic, so that a lost hint only costs latency."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any

from django.db.models import Count, Max, Model, Sum

from reliability.models import (
    Decision,
    DecisionVerdict,
    Drill,
    Failover,
    FailoverEvent,
    Finding,
    Hold,
    Incident,
    IncidentEvent,
    Job,
    MaintenanceWindow,
    ModeRule,
    Node,
    Plan,
    Rank,
    Report,
    Room,
    Slot,
    SnapshotCopy,
    SnapshotEvent,
    Validation,
)

OVERVIEW = "overview"
MAINTENANCE = "maintenance"
RECENT_ROWS = 200

Signature = Mapping[str, Hashable]


class _Parts:
    """Collects rows under the topics they belong to."""

    def __init__(self) -> None:
        self.by_topic: dict[str, list[Hashable]] = defaultdict(list)

    def add(self, kind: str, owner: int | None, *values: Hashable) -> None:
        if owner is not None:
            self.by_topic[f"{kind}:{owner}"].append(values)
        self.by_topic[OVERVIEW].append((kind, owner, values))


def _newest(model: type[Model], owner: str, **conditions: Any) -> dict[int | None, int]:
    """Return the newest primary key per owner among the last rows: enough to see that a row was added."""
    rows = model._default_manager.filter(**conditions).order_by("-pk").values_list(owner, "pk")[:RECENT_ROWS]
    newest: dict[int | None, int] = {}
    for owner_id, key in rows:
        newest.setdefault(owner_id, key)
    return newest


def _jobs(parts: _Parts) -> None:
    for key, *values in Job.objects.values_list("pk", "state", "state_reason", "epoch", "every_steps", "approval"):
        parts.add("job", key, *values)
    progress = Rank.objects.values("job_id").annotate(
        steps=Sum("step"),
        exits=Count("exit_code"),
        at=Max("progress_at"),
        first=Sum("first_step_epoch"),
        plans=Sum("plan_version"),
    )
    for row in progress.order_by("job_id"):
        parts.add("job", row["job_id"], row["steps"], row["exits"], row["at"], row["first"], row["plans"])
    for job, rank, state in Rank.objects.values_list("job_id", "rank", "state"):
        parts.add("job", job, rank, state)
    for job, index, node in Slot.objects.values_list("job_id", "index", "node_id"):
        parts.add("job", job, index, node)
    ledger = ((SnapshotCopy, "snapshot__job_id"), (SnapshotEvent, "snapshot__job_id"))
    for model, owner in (*ledger, (Plan, "job_id"), (Incident, "job_id")):
        for owner_id, newest in _newest(model, owner).items():
            parts.add("job", owner_id, model.__name__, newest)
    for job, key, state in Drill.objects.order_by("-pk").values_list("job_id", "pk", "state")[:RECENT_ROWS]:
        parts.add("job", job, key, state)


def _nodes(parts: _Parts) -> None:
    rows = Node.objects.values_list(
        "pk", "health", "health_reason", "role", "tier", "preemptible", "incarnation", "last_seen_at"
    )
    for key, *values in rows:
        parts.add("node", key, *values)
    for key, node in Hold.objects.filter(released_at=None).values_list("pk", "node_id"):
        parts.add("node", node, "hold", key)
    for key, node, verdict in Validation.objects.order_by("-pk").values_list("pk", "node_id", "verdict")[:RECENT_ROWS]:
        parts.add("node", node, key, verdict)
    for owner_id, newest in _newest(Finding, "node_id").items():
        parts.add("node", owner_id, "finding", newest)
    for owner_id, newest in _newest(Report, "node_id", state=Report.State.REFUSED).items():
        parts.add("node", owner_id, "refused", newest)


def _decisions(parts: _Parts) -> None:
    for incident, key in _newest(Decision, "incident_id").items():
        parts.add("incident", incident, "decision", key)
    for incident, key in _newest(DecisionVerdict, "decision__incident_id").items():
        parts.add("incident", incident, "verdict", key)
    parts.by_topic[OVERVIEW].append(("modes", ModeRule.objects.aggregate(newest=Max("pk"))["newest"]))


def _recoveries(parts: _Parts) -> None:
    failovers = Failover.objects.order_by("-pk").values_list("pk", "job_id", "state", "state_since", "digest")
    for key, job, *values in failovers[:RECENT_ROWS]:
        parts.add("failover", key, *values)
        parts.add("job", job, key, *values)
    for key, node, level, changed_at in Room.objects.values_list("pk", "node_id", "level", "changed_at"):
        parts.add("node", node, "room", key, level, changed_at)
    for failover, key in _newest(FailoverEvent, "failover_id").items():
        parts.add("failover", failover, "event", key)
    incidents = Incident.objects.order_by("-pk").values_list(
        "pk", "action", "fault_class", "summary", "closed_at", "held_back", "waits_until", "to_answer"
    )
    for key, *values in incidents[:RECENT_ROWS]:
        parts.add("incident", key, *values)
    for incident, key in _newest(IncidentEvent, "incident_id").items():
        parts.add("incident", incident, "event", key)
    for incident, key in _newest(Finding, "incident_id").items():
        parts.add("incident", incident, "finding", key)
    for key, ends_at in MaintenanceWindow.objects.order_by("-pk").values_list("pk", "ends_at")[:RECENT_ROWS]:
        parts.by_topic[MAINTENANCE].append((key, ends_at))


def signature() -> Signature:
    """Return a comparable value per topic: overview, job:<id>, node:<id>, failover:<id>, incident:<id>, maintenance."""
    parts = _Parts()
    for collect in (_jobs, _nodes, _recoveries, _decisions):
        collect(parts)
    return {topic: hash(tuple(values)) for topic, values in parts.by_topic.items()}


def changed_topics(before: Signature, after: Signature) -> list[str]:
    """Return the topics whose signature differs, those that are new or gone included."""
    return sorted(topic for topic in before.keys() | after.keys() if before.get(topic) != after.get(topic))
