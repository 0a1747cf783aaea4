"""What commits said of the parts of shards, and the heads that travelled with them (docs/adr/0016-parts.md)."""

from django.db import models

from reliability.models.snapshots import Snapshot


class ShardPart(models.Model):
    """One rank's shard by its parts, bytes and offsets as the node's commit report says.

    `head`: what lies before the replicated part, compressed; null where it did not travel or is not kept any more.
    """

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="parts")
    rank = models.PositiveIntegerField()
    digest = models.CharField(max_length=140)
    size_bytes = models.PositiveBigIntegerField()
    shared_at = models.PositiveBigIntegerField()
    shared_bytes = models.PositiveBigIntegerField()
    shared_digest = models.CharField(max_length=64)
    sharded_bytes = models.PositiveBigIntegerField(default=0)
    group = models.CharField(max_length=120, blank=True)
    head = models.BinaryField(null=True, blank=True)

    class Meta:
        ordering = ("snapshot", "rank")
        constraints = (models.UniqueConstraint(fields=("snapshot", "rank"), name="parts_once_per_shard"),)

    def __str__(self) -> str:
        return f"{self.snapshot} parts of rank {self.rank}"
