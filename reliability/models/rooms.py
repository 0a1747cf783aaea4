"""How much room each tier of a node, and each job's storage, has left, how fast it fills, and whether that is told."""

from django.db import models

from reliability.domain.room import Level
from reliability.models.nodes import Node, choices
from reliability.models.recoveries import Incident


class Room(models.Model):
    """One tier of a node, or a storage folder that many nodes share (`node` null, `place` its address).

    `fills_bytes_per_s`: how fast free space goes, as averaged lately; negative while it grows. The anchor is the look
    from which the next rate is measured.
    """

    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.CASCADE, related_name="rooms")
    tier = models.CharField(max_length=8)
    place = models.CharField(max_length=255, blank=True)
    free_bytes = models.PositiveBigIntegerField()
    total_bytes = models.PositiveBigIntegerField()
    free_inodes = models.PositiveBigIntegerField(null=True, blank=True)
    total_inodes = models.PositiveBigIntegerField(null=True, blank=True)
    save_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="what one more save takes here")
    fills_bytes_per_s = models.FloatField(null=True, blank=True)
    anchor_bytes = models.PositiveBigIntegerField()
    anchor_at = models.DateTimeField()
    level = models.CharField(max_length=8, choices=choices(Level), default=Level.OK)
    words = models.TextField(blank=True)
    incident = models.ForeignKey(Incident, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(help_text="when its level changed last")
    looked_at = models.DateTimeField()

    class Meta:
        ordering = ("tier", "node", "place")
        constraints = (
            models.UniqueConstraint(
                fields=("node", "tier"), condition=models.Q(node__isnull=False), name="room_once_per_tier_of_a_node"
            ),
            models.UniqueConstraint(
                fields=("tier", "place"), condition=models.Q(node=None), name="room_once_per_shared_place"
            ),
        )

    def __str__(self) -> str:
        return f"{self.tier} of {self.node or self.place}: {self.level}"
