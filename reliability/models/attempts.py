"""How attempts of a job ended, and which batches a job leaves out."""

from django.db import models

from reliability.models.jobs import Job
from reliability.models.recoveries import Failover, Incident


class AttemptEnd(models.Model):
    """One end of an attempt, kept once. From these the restart budget is counted (domain/budget.py)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempt_ends")
    number = models.PositiveIntegerField(help_text="epoch of the attempt")
    at = models.DateTimeField()
    code = models.CharField(max_length=64, blank=True)
    cause = models.CharField(max_length=80, help_text="class and family of the code: what shares a budget")
    signature = models.CharField(max_length=200, help_text="code and last line without its numbers")
    node = models.CharField(max_length=80, blank=True)
    rank = models.PositiveIntegerField(null=True, blank=True)
    start_epoch = models.PositiveIntegerField(null=True, blank=True)
    start_step = models.PositiveBigIntegerField(null=True, blank=True)
    reached = models.PositiveBigIntegerField(null=True, blank=True, help_text="newest step of any rank")
    last_step = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="last step of the rank that failed first, as it told with its end"
    )
    saved = models.PositiveBigIntegerField(null=True, blank=True, help_text="newest complete snapshot")
    counts = models.BooleanField(default=True, help_text="False: a drill or a lost node, no doing of the program")
    why = models.TextField(blank=True)
    failover = models.ForeignKey(
        Failover, null=True, blank=True, on_delete=models.SET_NULL, related_name="attempt_ends"
    )

    class Meta:
        ordering = ("job", "number")
        constraints = (models.UniqueConstraint(fields=("job", "number"), name="one_end_per_attempt"),)

    def __str__(self) -> str:
        return f"{self.job} epoch {self.number}: {self.code}"


class BatchSkip(models.Model):
    """A batch that always ends the job, and whether a person decided that all ranks leave it out."""

    class State(models.TextChoices):
        OFFERED = "offered", "waits for a decision"
        APPROVED = "approved", "left out"
        REJECTED = "rejected", "not left out"
        CLOSED = "closed", "closed"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="batch_skips")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="batch_skips")
    step = models.PositiveBigIntegerField(help_text="the step whose batch is left out")
    state = models.CharField(max_length=12, choices=State.choices, default=State.OFFERED)
    reason = models.TextField(blank=True)
    digest = models.CharField(max_length=64)
    offered_at = models.DateTimeField()
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        ordering = ("job", "step")
        constraints = (models.UniqueConstraint(fields=("job", "step"), name="batch_skipped_once"),)

    def __str__(self) -> str:
        return f"{self.job}: batch of step {self.step} {self.get_state_display()}"
