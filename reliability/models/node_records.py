"""What is known of nodes beside their own row: standing checks, quarantined hardware, and what happened to them."""

from django.db import models

from reliability.models.nodes import Node


class NodeCheck(models.Model):
    """The last that a node told of one of its standing checks. `ok` is null when the check gave no result.

    Written when the value changes, and now and then so that the age stays right. `stale_at` is when it is out of date.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="checks")
    name = models.CharField(max_length=64)
    ok = models.BooleanField(null=True)
    reason = models.TextField(blank=True)
    measured = models.JSONField(default=dict, blank=True)
    limit_s = models.FloatField(help_text="older than this it is out of date")
    since = models.DateTimeField(help_text="when it began to be what it is")
    checked_at = models.DateTimeField(null=True, blank=True, help_text="server time: when it was told, less its age")
    stale_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("node", "name"), name="one_check_of_a_name_per_node"),)
        indexes = (
            models.Index(fields=("ok", "node"), name="node_check_ok"),
            models.Index(fields=("stale_at",), name="node_check_stale"),
        )

    def __str__(self) -> str:
        return f"{self.node_id}: {self.name}"


class Quarantine(models.Model):
    """Hardware that must not be used, whatever the name of the node it is in.

    `identities` are those of its node that no other live node had (reliability/domain/health/hardware.py); without any,
    only the node itself is meant.
    """

    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="quarantines")
    found_as = models.CharField(max_length=80, help_text="name of the node in which it was found bad")
    identities = models.JSONField(default=list, blank=True)
    reason = models.TextField()
    incident = models.ForeignKey(
        "Incident", null=True, blank=True, on_delete=models.SET_NULL, related_name="quarantines"
    )
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    released_at = models.DateTimeField(null=True, blank=True)
    released_by = models.CharField(max_length=150, blank=True)
    release_note = models.TextField(blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        permissions = (("override_quarantine", "Can use a node in spite of quarantined hardware"),)
        constraints = (
            models.UniqueConstraint(
                fields=("node",), condition=models.Q(released_at=None), name="one_open_quarantine_per_node"
            ),
        )

    def __str__(self) -> str:
        return f"quarantine {self.pk} of {self.found_as}"


class QuarantineOverride(models.Model):
    """A person lets one node be used in spite of a quarantine, and says why."""

    quarantine = models.ForeignKey(Quarantine, on_delete=models.CASCADE, related_name="overrides")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="quarantine_overrides")
    note = models.TextField()
    by = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ("-at", "-id")
        constraints = (models.UniqueConstraint(fields=("quarantine", "node"), name="one_override_per_node"),)

    def __str__(self) -> str:
        return f"{self.quarantine_id} for {self.node_id}"


class NodeEvent(models.Model):
    """Append-only: what happened to a node, written in the transaction that made it happen."""

    class Kind(models.TextChoices):
        HEALTH = "health", "health"
        CHECK = "check", "check"
        ROLE = "role", "role"
        HOLD = "hold", "hold"
        QUARANTINE = "quarantine", "quarantine"
        HARDWARE = "hardware", "hardware"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    at = models.DateTimeField()
    text = models.TextField()
    actor = models.CharField(max_length=150, default="stepkeeper")
    worse = models.BooleanField(default=False, help_text="it got worse by this; counted to see a node that flaps")
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (
            models.Index(fields=("node", "-at"), name="node_event_node_at"),
            models.Index(fields=("worse", "at"), name="node_event_worse_at"),
            models.Index(fields=("kind", "at"), name="node_event_kind_at"),
        )

    def __str__(self) -> str:
        return f"{self.node_id}: {self.text}"
