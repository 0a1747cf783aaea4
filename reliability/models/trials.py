"""Trial restores: when a job's snapshots are tried, and what came of each trial."""

from django.db import models
from django.db.models import Q

from reliability.models.jobs import Job
from reliability.models.nodes import Node
from reliability.models.snapshots import Snapshot


class TrialSchedule(models.Model):
    """When a job's newest stored snapshot is tried by itself: every so many hours, or every so many snapshots."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="trial_schedule")
    every_hours = models.FloatField(null=True, blank=True)
    every_snapshots = models.PositiveIntegerField(null=True, blank=True)
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job}: when snapshots are tried"


class TrialRestore(models.Model):
    """One snapshot, loaded and compared on one standby. `result` is what the node answered, with every bad file."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        PASSED = "passed", "passed"
        FAILED = "failed", "failed: a copy is no good"
        STOPPED = "stopped", "ended early"
        UNDECIDED = "undecided", "could not be done"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="trials")
    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="trials")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="trials")
    state = models.CharField(max_length=12, choices=State.choices, default=State.RUNNING)
    reason = models.TextField(blank=True, help_text="what came of it, in words")
    result = models.JSONField(default=dict, blank=True)
    asked_by = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-started_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("job",), condition=Q(state="running"), name="one_trial_at_a_time_of_a_job"),
            models.UniqueConstraint(
                fields=("node",), condition=Q(state="running"), name="one_trial_at_a_time_on_a_node"
            ),
        )
        indexes = (models.Index(fields=("snapshot", "state"), name="trial_of_snapshot"),)

    def __str__(self) -> str:
        return f"trial {self.pk}: {self.snapshot} on {self.node}"
