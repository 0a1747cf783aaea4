"""What happened to an incident, append-only: how its judgement rose, what was merged, who did what."""

from django.db import models

from reliability.models.recoveries import Incident


class IncidentEvent(models.Model):
    """One line of an incident's timeline that no finding and no failover tells."""

    class Kind(models.TextChoices):
        RAISED = "raised", "judgement raised"
        HELD_BACK = "held_back", "held back"
        RELEASED = "released", "hold-back released"
        WAITING = "waiting", "waits for a node"
        MERGED = "merged", "merged"
        CLOSED = "closed", "closed"
        REOPENED = "reopened", "opened again"
        NOTE = "note", "note"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    sentence = models.TextField()
    actor = models.CharField(max_length=150, default="stepkeeper")

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.incident_id} {self.kind}"
