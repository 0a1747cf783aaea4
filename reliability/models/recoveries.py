"""Findings, incidents, and the failovers that answer them, with every event, order and drill."""

import uuid

from django.db import models
from django.utils import timezone

from reliability.domain.failover import Kind, State
from reliability.domain.faults import Action, FaultClass, Severity
from reliability.domain.orders import OrderKind
from reliability.models.jobs import Job, Slot
from reliability.models.nodes import Node, Report, choices


class Incident(models.Model):
    """Findings that belong together, with the class and action they come to."""

    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="incidents")
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="incidents")
    epoch = models.PositiveIntegerField(default=0)
    code = models.CharField(max_length=64, blank=True)
    fault_class = models.CharField(max_length=16, choices=choices(FaultClass), default=FaultClass.UNKNOWN)
    action = models.CharField(max_length=20, choices=choices(Action), default=Action.OBSERVE)
    summary = models.TextField(blank=True)
    reasons = models.JSONField(default=list, blank=True)
    held_back = models.BooleanField(
        default=False, help_text="So many nodes show the same that nothing is moved and no node is marked."
    )
    meanwhile = models.CharField(
        max_length=20, choices=choices(Action), blank=True, help_text="what is done while it is held back"
    )
    reach = models.JSONField(default=dict, blank=True, help_text="{code, nodes, total, of, window_s} of many at once")
    released_by = models.CharField(max_length=150, blank=True, help_text="who released what was held back")
    released_at = models.DateTimeField(null=True, blank=True)
    to_answer = models.BooleanField(default=False, help_text="It was judged, and what it calls for is not done yet.")
    waits_until = models.DateTimeField(
        null=True, blank=True, help_text="a planned time ends then; until then its node is awaited"
    )
    opened_at = models.DateTimeField(db_index=True)
    closed_at = models.DateTimeField(null=True, blank=True, db_index=True)
    close_reason = models.TextField(blank=True)

    class Meta:
        ordering = ("-opened_at", "-id")
        permissions = (("close_incident", "Can close and reopen incidents"),)

    def __str__(self) -> str:
        return f"incident {self.pk}: {self.summary}"


class Finding(models.Model):
    """One observation, as judged by the fault-code table."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="findings")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="findings")
    incident = models.ForeignKey(Incident, null=True, blank=True, on_delete=models.SET_NULL, related_name="findings")
    key = models.CharField(
        max_length=200, null=True, blank=True, unique=True, help_text="makes a finding of the server itself idempotent"
    )
    report = models.OneToOneField(Report, null=True, blank=True, on_delete=models.SET_NULL, related_name="finding")
    maintenance = models.ForeignKey(
        "MaintenanceWindow",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="findings",
        help_text="the planned time that made it no incident",
    )
    rank = models.PositiveIntegerField(null=True, blank=True)
    epoch = models.PositiveIntegerField(null=True, blank=True)
    code = models.CharField(max_length=64)
    fault_class = models.CharField(max_length=16, choices=choices(FaultClass))
    action = models.CharField(max_length=20, choices=choices(Action))
    severity = models.CharField(max_length=8, choices=choices(Severity))
    evidence = models.TextField(blank=True)
    fields = models.JSONField(default=dict, blank=True, help_text="what the line carries: device, pid, ...")
    source = models.CharField(max_length=80, blank=True, help_text="who saw it, empty for the node's own agent")
    count = models.PositiveBigIntegerField(default=1)
    found_at = models.DateTimeField()
    last_at = models.DateTimeField(default=timezone.now, help_text="when the same was told last")
    agent_at = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ("-found_at", "-id")
        indexes = (
            models.Index(fields=("incident", "id"), name="finding_of_incident"),
            models.Index(fields=("code", "found_at"), name="finding_by_code"),
        )

    def __str__(self) -> str:
        return f"{self.node} {self.code}"


class Drill(models.Model):
    """A fault that was made on purpose, and what recovery from it took."""

    class What(models.TextChoices):
        KILL_RANK = "kill_rank", "kill a rank"
        KILL_NODE = "kill_node", "kill the node's container and silence its agent"
        STOP_HEARTBEATS = "stop_heartbeats", "stop the heartbeats only"

    class State(models.TextChoices):
        RUNNING = "running", "running"
        RECOVERED = "recovered", "recovered"
        UNHARMED = "unharmed", "training was not touched"
        FAILED = "failed", "failed"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="drills")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="drills")
    what = models.CharField(max_length=20, choices=What.choices)
    state = models.CharField(max_length=12, choices=State.choices, default=State.RUNNING)
    started_by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    failover = models.ForeignKey("Failover", null=True, blank=True, on_delete=models.SET_NULL, related_name="drills")
    result = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("-started_at",)

    def __str__(self) -> str:
        return f"drill {self.pk}: {self.get_what_display()} on {self.node}"


class Failover(models.Model):
    """One recovery. `state` is written by services.failovers alone, by compare-and-set.

    `proposal` is what is shown for approval (candidates, restore point, reasons); `digest` is its digest, and an
    approval binds to it. `attempt` counts tries of restore and start.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="failovers")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="failovers")
    kind = models.CharField(max_length=20, choices=choices(Kind))
    state = models.CharField(max_length=24, choices=choices(State), default=State.AWAITING_APPROVAL)
    state_since = models.DateTimeField()
    slot = models.ForeignKey(Slot, null=True, blank=True, on_delete=models.SET_NULL, related_name="failovers")
    failed_node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="failovers_from"
    )
    standby = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="failovers_to")
    moves = models.JSONField(
        default=list, blank=True, help_text="[{slot, from, to}]: every slot that changes its node in this recovery"
    )
    refused_standbys = models.JSONField(default=list, blank=True)
    from_epoch = models.PositiveIntegerField()
    to_epoch = models.PositiveIntegerField()
    restore_epoch = models.PositiveIntegerField(null=True, blank=True)
    restore_step = models.PositiveBigIntegerField(null=True, blank=True)
    fault_step = models.PositiveBigIntegerField(null=True, blank=True, help_text="newest step any rank had reached")
    progress_step = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="newest complete snapshot when it was opened; a newer one proves progress"
    )
    attempt = models.PositiveIntegerField(default=1)
    start_after = models.DateTimeField(
        null=True, blank=True, help_text="back-off: the next attempt is not started before"
    )
    proposal = models.JSONField(default=dict, blank=True)
    digest = models.CharField(max_length=64, blank=True)
    superseded_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="supersedes"
    )
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_note = models.TextField(blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    fault_at = models.DateTimeField(help_text="server time of the first finding")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        permissions = (("approve_failover", "Can approve or reject a failover"),)
        constraints = (
            models.UniqueConstraint(
                fields=("job",),
                condition=models.Q(
                    state__in=[
                        "awaiting_approval",
                        "fencing",
                        "fence_unconfirmed",
                        "waiting_for_standby",
                        "validating",
                        "restoring",
                        "starting",
                        "verifying",
                    ]
                ),
                name="one_open_failover_per_job",
            ),
        )

    def __str__(self) -> str:
        return f"failover {self.pk} of {self.job}"


class FailoverEvent(models.Model):
    """Append-only record of a transition, written in the transaction that made it."""

    failover = models.ForeignKey(Failover, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    source = models.CharField(max_length=24, blank=True)
    event = models.CharField(max_length=24)
    target = models.CharField(max_length=24)
    sentence = models.TextField()
    actor = models.CharField(max_length=150, default="stepkeeper")
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.failover_id}: {self.source} -> {self.target}"


class OrderRecord(models.Model):
    """An order to a node as the server keeps it. `key` makes issuing idempotent; each sending has its own nonce."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        REFUSED = "refused", "refused by the node"
        EXPIRED = "expired", "expired"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    key = models.CharField(max_length=200, unique=True)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="orders")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="orders")
    failover = models.ForeignKey(Failover, null=True, blank=True, on_delete=models.CASCADE, related_name="orders")
    kind = models.CharField(max_length=20, choices=choices(OrderKind))
    epoch = models.PositiveIntegerField(default=0)
    payload = models.JSONField(default=dict)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PENDING)
    result = models.JSONField(default=dict, blank=True)
    sendings = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("created_at",)
        indexes = (models.Index(fields=("node", "state"), name="order_node_state"),)

    def __str__(self) -> str:
        return f"{self.kind} for {self.node}"
