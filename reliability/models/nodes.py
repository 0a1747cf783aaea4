"""Nodes, what holds them back, and what they reported."""

from django.db import models

from reliability.domain.health import NodeHealth, NodeRole
from reliability.domain.standby import Verdict


def choices(enum: type) -> list[tuple[str, str]]:
    """Return Django choices of a StrEnum, labels in words."""
    return [(member.value, member.value.replace("_", " ")) for member in enum]  # type: ignore[attr-defined]


class Node(models.Model):
    """A machine with an agent. `last_seen_at` is when the server last received anything from it."""

    name = models.SlugField(max_length=80, unique=True)
    address = models.CharField(max_length=255)
    runtime = models.CharField(max_length=16)
    role = models.CharField(max_length=16, choices=choices(NodeRole), default=NodeRole.STANDBY)
    role_hint = models.CharField(
        max_length=16,
        choices=choices(NodeRole),
        default=NodeRole.STANDBY,
        help_text="What it is for when no job uses it.",
    )
    tier = models.PositiveSmallIntegerField(default=1, help_text="Priority as a standby; 1 is used first.")
    preemptible = models.BooleanField(default=False, help_text="Its own work may be stopped when it is needed.")
    failure_domain = models.CharField(
        max_length=80, blank=True, help_text="What fails together: a rack, a power feed; empty when nobody named one."
    )
    health = models.CharField(max_length=16, choices=choices(NodeHealth), default=NodeHealth.UNKNOWN)
    health_reason = models.TextField(blank=True)
    health_since = models.DateTimeField(null=True, blank=True)
    health_causes = models.JSONField(
        default=list, blank=True, help_text="[{key, state, text, clears, since, ended_at}], the worst first"
    )
    incarnation = models.CharField(max_length=64, blank=True)
    token_hash = models.CharField(max_length=64, blank=True)
    key_generation = models.CharField(max_length=32, blank=True)
    hardware_ids = models.JSONField(default=dict, blank=True)
    host_facts = models.JSONField(default=dict, blank=True)
    agent_version = models.CharField(max_length=32, blank=True)
    containers = models.JSONField(
        default=dict, blank=True, help_text="job -> {epoch, container}, as the last heartbeat told"
    )
    disks = models.JSONField(
        default=dict, blank=True, help_text="tier -> {free_bytes, total_bytes, free_inodes, total_inodes}"
    )
    spooled = models.PositiveIntegerField(default=0, help_text="reports that wait on the node to be sent")
    fault_table = models.JSONField(
        default=dict, blank=True, help_text="{shipped, changes, refused}: the table that it matches lines with"
    )
    registered_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Hold(models.Model):
    """A reason for not using a node. `owner` is 'automation' or a user name; automation lifts only its own.

    With `expires_at` it ends by itself then.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="holds")
    owner = models.CharField(max_length=150)
    reason = models.TextField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    released_by = models.CharField(max_length=150, blank=True)
    release_note = models.TextField(blank=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


class Validation(models.Model):
    """One check of a standby and what was measured in it (M4)."""

    class Check(models.TextChoices):
        BANDWIDTH = "bandwidth", "bandwidth"
        SDC = "sdc", "silent corruption"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="validations")
    failover = models.ForeignKey(
        "Failover", null=True, blank=True, on_delete=models.SET_NULL, related_name="validations"
    )
    check_kind = models.CharField(max_length=16, choices=Check.choices)
    verdict = models.CharField(max_length=8, choices=choices(Verdict), blank=True)
    reason = models.TextField(blank=True)
    measured = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-started_at",)

    def __str__(self) -> str:
        return f"{self.node} {self.check_kind} {self.verdict or 'running'}"


class Report(models.Model):
    """One report as it came in. The server answers only after it is stored; (node, incarnation, seq) is unique."""

    class State(models.TextChoices):
        NEW = "new", "new"
        PROCESSED = "processed", "processed"
        REFUSED = "refused", "refused"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="reports")
    incarnation = models.CharField(max_length=64)
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=32)
    job_name = models.CharField(max_length=80, blank=True)
    epoch = models.PositiveIntegerField(null=True, blank=True)
    body = models.JSONField(default=dict)
    count = models.PositiveBigIntegerField(default=1, help_text="so many findings that are the same came as this one")
    same = models.CharField(max_length=32, blank=True, help_text="what makes two findings the same")
    agent_at = models.FloatField(null=True, blank=True)
    received_at = models.DateTimeField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.NEW)
    refusal = models.TextField(blank=True)

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("node", "incarnation", "seq"), name="report_once_per_incarnation"),
        )
        indexes = (
            models.Index(fields=("state", "id"), name="report_state_id"),
            models.Index(fields=("state", "node", "id"), name="report_state_node_id"),
        )

    def __str__(self) -> str:
        return f"{self.node} #{self.seq} {self.kind}"


class Lease(models.Model):
    """Who of several controllers does a piece of periodic work; another may take it when `until` has passed."""

    name = models.CharField(max_length=40, unique=True)
    holder = models.CharField(max_length=80)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} held by {self.holder}"


class ServiceBeat(models.Model):
    """That a part of the control plane lives, and since when: silence counts only while ingest listened."""

    name = models.CharField(max_length=40, unique=True)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    away_since = models.DateTimeField(null=True, blank=True, help_text="when it was away for long, the last time")
    back_at = models.DateTimeField(null=True, blank=True, help_text="when that was over")

    def __str__(self) -> str:
        return self.name
