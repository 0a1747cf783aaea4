"""Limits that people set over those of the settings. Append-only: the last row is the one in force."""

from django.db import models


class LimitChange(models.Model):
    """What was set, by whom, when and why. `values` are all limits that differ from the settings from then on."""

    values = models.JSONField(default=dict, blank=True)
    reason = models.TextField()
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        permissions = (("set_limits", "Can set the limits of silence and of many nodes at once"),)

    def __str__(self) -> str:
        return f"limits {self.pk} by {self.changed_by}"
