"""How often a job saves: every plan that was applied, and the limits within which it is planned anew by itself."""

from django.db import models

from reliability.models.jobs import Job


class Plan(models.Model):
    """A snapshot period that was applied to a job (M10): what it came from, who applied it, and what came of it.

    It is announced with a step ahead of all ranks, is in force once every rank has passed that step with it
    (`began_at`), and until the next plan is (`ended_at`).
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="plans")
    version = models.PositiveIntegerField()
    inputs = models.JSONField(help_text="name -> {value, source, told, by}")
    outputs = models.JSONField(help_text="the planner's answer, as the command and REST give it")
    every_steps = models.PositiveIntegerField()
    period_s = models.FloatField(help_text="start to start, at the speed the job had then")
    step_s = models.FloatField(help_text="seconds a step took then")
    target = models.FloatField()
    planned_ettr = models.FloatField(help_text="effective training rate to be expected at this period")
    from_step = models.PositiveBigIntegerField()
    newest_step = models.PositiveBigIntegerField(default=0, help_text="newest step of any rank when it was announced")
    announced = models.PositiveIntegerField(default=0, help_text="number that ranks know its last announcement by")
    epoch = models.PositiveIntegerField(default=0)
    automatic = models.BooleanField(default=False)
    reason = models.TextField(blank=True)
    applied_by = models.CharField(max_length=150)
    applied_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True, blank=True)
    began_step = models.PositiveBigIntegerField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_step = models.PositiveBigIntegerField(null=True, blank=True)
    measured = models.JSONField(default=dict, blank=True, help_text="what came of it, kept when it was replaced")

    class Meta:
        ordering = ("-version",)
        constraints = (models.UniqueConstraint(fields=("job", "version"), name="plan_version_once_per_job"),)

    def __str__(self) -> str:
        return f"{self.job} plan {self.version}"


class AutoPlan(models.Model):
    """The limits within which a job's period is planned anew by itself, as a person set them."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="auto_plan")
    enabled = models.BooleanField(default=True)
    target = models.FloatField()
    shortest_period_s = models.FloatField()
    longest_period_s = models.FloatField()
    change_ratio = models.FloatField(default=1.25, help_text="A period that differs by less is left as it is.")
    least_interval_s = models.FloatField(default=3600.0, help_text="Least time since the last plan of any kind.")
    confirmed = models.JSONField(
        default=dict, blank=True, help_text="name -> value that stands in while nothing is measured"
    )
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField()
    last_looked_at = models.DateTimeField(null=True, blank=True)
    last_outcome = models.TextField(blank=True)

    class Meta:
        ordering = ("job",)

    def __str__(self) -> str:
        return f"automatic plans of {self.job}"
