"""The ledger of snapshots: a step counts only through rows here, written from commit reports.

A copy is one rank's shard on one tier. `SnapshotTier` and the counts of `Snapshot` are what lists and decisions read;
services/snapshot_tally.py counts them anew in the transaction that changes a copy.
"""

from django.db import models
from django.db.models import F, Q

from reliability.domain.ledger import Standing
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
    held = models.PositiveIntegerField(default=0, help_text="ranks with a copy that can be read, on any tier")
    durable = models.PositiveIntegerField(default=0, help_text="ranks with such a copy on an SSD or on storage")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("job", "-epoch", "-step")
        constraints = (models.UniqueConstraint(fields=("job", "epoch", "step"), name="snapshot_once_per_epoch_step"),)
        indexes = (
            models.Index(F("job"), F("step").desc(), F("epoch").desc(), name="snapshot_newest_first"),
            models.Index(F("job"), F("held"), F("step").desc(), F("epoch").desc(), name="snapshot_held"),
            models.Index(F("job"), F("durable"), F("step").desc(), F("epoch").desc(), name="snapshot_durable"),
        )

    def __str__(self) -> str:
        return f"{self.job} step {self.step} (epoch {self.epoch})"


class SnapshotCopy(models.Model):
    """One rank's shard on one tier. `node` is null on the storage tier. Times: server's, seconds as float.

    `verified_at`: when it was last known that somebody read it whole with the right digest.
    """

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="copies", db_index=False)
    rank = models.PositiveIntegerField()
    tier = models.CharField(max_length=8, choices=choices(Tier))
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.CASCADE, related_name="copies", db_index=False
    )
    path = models.TextField()
    size_bytes = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=140)
    state = models.CharField(max_length=12, choices=choices(CopyState), default=CopyState.COMMITTED)
    problem = models.TextField(blank=True, help_text="why it is corrupt, lost or removed")
    stall_s = models.FloatField(null=True, blank=True)
    drain_s = models.FloatField(null=True, blank=True)
    superseded = models.PositiveIntegerField(default=0, help_text="saves that were passed over before this one")
    committed_at = models.DateTimeField()
    verified_at = models.DateTimeField(null=True, blank=True)
    trial_restored_at = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True, help_text="when its state changed after the commit")

    class Meta:
        ordering = ("snapshot", "rank", "tier")
        verbose_name_plural = "snapshot copies"
        constraints = (
            models.UniqueConstraint(
                fields=("snapshot", "rank", "tier", "node"), condition=Q(node__isnull=False), name="copy_once_per_node"
            ),
            models.UniqueConstraint(
                fields=("snapshot", "rank", "tier"), condition=Q(node=None), name="copy_once_on_storage"
            ),
        )
        indexes = (
            models.Index(fields=("snapshot", "node", "rank"), name="copy_of_snapshot"),
            models.Index(fields=("node", "tier", "state", "rank", "id"), name="copy_on_node"),
            models.Index(
                fields=("changed_at",),
                condition=Q(state__in=[CopyState.DELETED.value, CopyState.LOST.value]),
                name="copy_gone",
            ),
        )

    def __str__(self) -> str:
        return f"{self.snapshot} rank {self.rank} on {self.tier}"


class SnapshotTier(models.Model):
    """What the copies of a snapshot come to on one tier (domain/ledger.py). Written by snapshot_tally alone."""

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="tiers", db_index=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+", db_index=False)
    epoch = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    tier = models.CharField(max_length=8, choices=choices(Tier))
    state = models.CharField(max_length=16, choices=choices(Standing), default=Standing.ABSENT)
    ranks = models.PositiveIntegerField(default=0)
    verified = models.PositiveIntegerField(default=0)
    trial_restored = models.PositiveIntegerField(default=0)
    corrupt = models.PositiveIntegerField(default=0)
    lost = models.PositiveIntegerField(default=0)
    removed = models.PositiveIntegerField(default=0)
    ever = models.PositiveIntegerField(default=0)
    size_bytes = models.PositiveBigIntegerField(default=0)
    stall_s = models.FloatField(null=True, blank=True)
    drain_s = models.FloatField(null=True, blank=True)
    complete_at = models.DateTimeField(null=True, blank=True)
    superseded = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("snapshot", "tier")
        constraints = (models.UniqueConstraint(fields=("snapshot", "tier"), name="tier_once_per_snapshot"),)
        indexes = (
            models.Index(F("job"), F("tier"), F("step").desc(), F("epoch").desc(), name="tier_newest"),
            models.Index(F("job"), F("tier"), F("ranks"), F("step").desc(), F("epoch").desc(), name="tier_complete"),
            models.Index(F("job"), F("tier"), F("state"), F("step").desc(), F("epoch").desc(), name="tier_state"),
        )

    def __str__(self) -> str:
        return f"{self.snapshot} on {self.tier}: {self.state}"


class SnapshotEvent(models.Model):
    """What happened to copies after their commit, written in the transaction that did it; a removal gathers ranks."""

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    tier = models.CharField(max_length=8, choices=choices(Tier), blank=True)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)
    ranks = models.JSONField(default=list, help_text="ranks that it happened to")
    target = models.CharField(max_length=16, choices=choices(Standing))
    sentence = models.TextField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.snapshot} on {self.tier}: {self.sentence}"
