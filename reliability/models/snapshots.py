"""The ledger of snapshots: a step counts only through rows here, written from commit reports."""

from django.db import models

from reliability.domain.snapshots import CopyState, Tier
from reliability.models.jobs import Job
from reliability.models.nodes import Node, choices


class Snapshot(models.Model):
    """The training state of a job after `step`, taken by `epoch`."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="snapshots")
    epoch = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    distrusted = models.BooleanField(default=False, help_text="Never restored again; the reason is kept.")
    distrust_reason = models.TextField(blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("job", "-epoch", "-step")
        constraints = (models.UniqueConstraint(fields=("job", "epoch", "step"), name="snapshot_once_per_epoch_step"),)

    def __str__(self) -> str:
        return f"{self.job} step {self.step} (epoch {self.epoch})"


class SnapshotCopy(models.Model):
    """One rank's shard on one tier. `node` is null on the storage tier. Times: server's, seconds as float."""

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="copies")
    rank = models.PositiveIntegerField()
    tier = models.CharField(max_length=8, choices=choices(Tier))
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.CASCADE, related_name="copies")
    path = models.TextField()
    size_bytes = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=140)
    state = models.CharField(max_length=12, choices=choices(CopyState), default=CopyState.COMMITTED)
    stall_s = models.FloatField(null=True, blank=True)
    drain_s = models.FloatField(null=True, blank=True)
    committed_at = models.DateTimeField()

    class Meta:
        ordering = ("snapshot", "rank", "tier")
        verbose_name_plural = "snapshot copies"
        constraints = (
            models.UniqueConstraint(
                fields=("snapshot", "rank", "tier", "node"), name="copy_once_per_place", nulls_distinct=False
            ),
        )

    def __str__(self) -> str:
        return f"{self.snapshot} rank {self.rank} on {self.tier}"
