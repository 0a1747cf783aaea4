"""What each tier of a job keeps, and which copies are to be removed by whom. Rows of the decision, never of a wish."""

from django.db import models

from reliability.domain.retention import RULED, Why
from reliability.models.jobs import Job
from reliability.models.nodes import Node, choices
from reliability.models.snapshots import Snapshot, SnapshotCopy


class RetentionRule(models.Model):
    """What one tier of a job keeps (domain/retention.TierRule). Without a row the default holds."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="retention_rules")
    tier = models.CharField(max_length=8, choices=[(tier.value, tier.value) for tier in RULED])
    keep_newest = models.PositiveIntegerField()
    every_steps = models.PositiveBigIntegerField(default=0)
    keep_for_s = models.FloatField(default=0)
    cap_bytes = models.PositiveBigIntegerField(default=0)
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("job", "tier")
        constraints = (models.UniqueConstraint(fields=("job", "tier"), name="retention_rule_once_per_tier"),)

    def __str__(self) -> str:
        return f"{self.job}: what {self.tier} keeps"


class PlannedRemoval(models.Model):
    """A copy that a node is told to remove, until it says that it is gone. `node` need not be the one that made it."""

    copy = models.OneToOneField(SnapshotCopy, on_delete=models.CASCADE, related_name="planned_removal")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="planned_removals", db_index=False)
    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="planned_removals")
    tier = models.CharField(max_length=8, choices=[(tier.value, tier.value) for tier in RULED])
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="planned_removals")
    why = models.CharField(max_length=12, choices=choices(Why))
    words = models.TextField()
    planned_at = models.DateTimeField()

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=("job", "tier", "snapshot"), name="planned_of_job"),)

    def __str__(self) -> str:
        return f"{self.copy} goes: {self.words}"
