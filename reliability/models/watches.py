"""How a job got on of late: what a hang, a straggler or a drop of speed is told by."""

from django.db import models

from reliability.models.jobs import Job


class Watch(models.Model):
    """The windows of a job's present attempt, and what stands of what was found in it."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="watch")
    epoch = models.PositiveIntegerField(default=0)
    windows = models.JSONField(
        default=list, blank=True, help_text="[{at, step, step_s, computed: {rank: [seconds, role]}}], the oldest first"
    )
    hang = models.JSONField(default=dict, blank=True, help_text="{key, at, evidence} while the job hangs")
    slow = models.JSONField(default=dict, blank=True, help_text="{key, at, evidence} while it is slower than it was")
    stragglers = models.JSONField(default=dict, blank=True, help_text="rank -> {key, at, evidence} while it lags")
    found_at = models.DateTimeField(null=True, blank=True, help_text="when a loss that jumped was told last")

    def __str__(self) -> str:
        return f"watch of {self.job}"
