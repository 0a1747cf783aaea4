"""Guarded jobs: what to run, where each slot runs, how far each rank is, and every attempt."""

from django.db import models

from reliability.domain import program_folders
from reliability.domain.faults import Action
from reliability.domain.policy import Approval, LeaseRule
from reliability.models.nodes import Node, choices


class Job(models.Model):
    """A training job of `nodes` x `ranks_per_node` ranks."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        STARTING = "starting", "starting"
        RUNNING = "running", "running"
        RECOVERING = "recovering", "recovering"
        WAITING = "waiting", "waiting for a person"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        STOPPED = "stopped", "stopped"

    class Mode(models.TextChoices):
        FORK = "fork", "preload and fork"
        PLAIN = "plain", "plain"

    TERMINAL = (State.COMPLETED, State.FAILED, State.STOPPED)

    name = models.SlugField(max_length=80, unique=True)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PENDING)
    state_reason = models.TextField(blank=True)
    nodes = models.PositiveIntegerField()
    ranks_per_node = models.PositiveIntegerField(default=1)
    runtime = models.CharField(max_length=16)
    image = models.CharField(max_length=255, blank=True)
    program = models.JSONField(help_text="argv of a rank; its first item is a path of a Python file in fork mode")
    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.FORK)
    preload = models.JSONField(default=list, blank=True)
    env = models.JSONField(default=dict, blank=True)
    workdir = models.CharField(max_length=255, blank=True)
    mounts = models.JSONField(
        default=list, blank=True, help_text="[{source, target, read_only}]: folders of the node that the container sees"
    )
    snapshot_folder = models.JSONField(
        null=True,
        blank=True,
        default=None,
        help_text="{of, sealed_by, quiet_s, marker, pattern, aside_bytes}: how its files are read; null: none",
    )
    resources = models.JSONField(default=dict, blank=True, help_text="memory_bytes, cpus, shm_bytes; 0 means no limit")
    storage_dir = models.CharField(max_length=255)
    master_port = models.PositiveIntegerField(default=29500)
    epoch = models.PositiveIntegerField(default=0)
    approval = models.CharField(max_length=12, choices=choices(Approval), default=Approval.MANUAL)
    unknown_action = models.CharField(max_length=20, choices=choices(Action), default=Action.RESTART_IN_PLACE)
    lease_rule = models.CharField(max_length=20, choices=choices(LeaseRule), default=LeaseRule.STOP_WHEN_STUCK)
    class_actions = models.JSONField(
        default=dict, blank=True, help_text="class -> action, in place of what the table and the cluster's policy say"
    )
    restart_budget = models.PositiveIntegerField(default=5, help_text="restarts for each cause without progress")
    partner_copies = models.BooleanField(
        default=False, help_text="Each node keeps its neighbour's newest shards in memory too."
    )
    partner_bytes_per_s = models.FloatField(
        default=0.0, help_text="how fast partner copies may be taken, bytes per second for each node; 0 means no limit"
    )
    every_steps = models.PositiveIntegerField(default=20, help_text="Snapshot period in steps, as ordered last.")
    period_plan = models.JSONField(default=list, blank=True, help_text="[{from_step, every_steps}], oldest first")
    period_version = models.PositiveIntegerField(
        default=0, help_text="raised by one whenever another period plan is announced to the ranks"
    )
    storage_step = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="newest step of the current line that is complete on storage"
    )
    warn_full_within_s = models.FloatField(
        null=True, blank=True, help_text="Warn when a tier would be full so soon; empty: the setting of all jobs."
    )
    warn_free_share = models.FloatField(
        null=True, blank=True, help_text="Warn when less than this share of a tier is free; empty: the setting."
    )
    created_at = models.DateTimeField()
    start_asked_at = models.DateTimeField(null=True, blank=True, help_text="when a person asked for its start")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ("name",)
        permissions = (
            ("operate_job", "Can submit, stop and drill jobs"),
            ("apply_plan", "Can apply a snapshot period to a job"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def folder_rule(self) -> str:
        """When what the program writes itself counts, in words; empty when it writes no snapshots."""
        rule = program_folders.rule_of(self.snapshot_folder)
        return rule.sentence() if rule else ""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.ranks_per_node


class Slot(models.Model):
    """One node's place in a job: a container with all its local ranks."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="slots")
    index = models.PositiveIntegerField()
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.PROTECT, related_name="slots")

    class Meta:
        ordering = ("job", "index")
        constraints = (models.UniqueConstraint(fields=("job", "index"), name="slot_once_per_job"),)

    def __str__(self) -> str:
        return f"{self.job}/{self.index}"


class Rank(models.Model):
    """How far one rank is. `progress_at` is when the server learnt of its last new step."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        RUNNING = "running", "running"
        EXITED = "exited", "finished"
        FAILED = "failed", "failed"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="ranks")
    slot = models.ForeignKey(Slot, on_delete=models.CASCADE, related_name="ranks")
    rank = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    epoch = models.PositiveIntegerField(default=0)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    step_s = models.FloatField(null=True, blank=True, help_text="recent duration of a step, seconds")
    loss = models.FloatField(null=True, blank=True)
    phase = models.CharField(max_length=32, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    moved_at = models.DateTimeField(
        null=True, blank=True, help_text="when it last finished a step or changed its phase, by its node's account"
    )
    watched = models.JSONField(
        default=dict, blank=True, help_text="what else its node tells: times of steps, limit of a phase, losses"
    )
    first_step_epoch = models.PositiveIntegerField(default=0, help_text="epoch in which it last passed its first step")
    first_step = models.PositiveBigIntegerField(null=True, blank=True, help_text="that first step")
    restored_step = models.BigIntegerField(null=True, blank=True, help_text="what the rank says it restored then")
    exit_code = models.IntegerField(null=True, blank=True)
    plan_version = models.PositiveIntegerField(default=0, help_text="newest announced period plan it goes by")

    class Meta:
        ordering = ("job", "rank")
        constraints = (models.UniqueConstraint(fields=("job", "rank"), name="rank_once_per_job"),)

    def __str__(self) -> str:
        return f"{self.job} rank {self.rank}"


class Epoch(models.Model):
    """One attempt of a job: what it restored, why it began, and from when to when it really trained."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="epochs")
    number = models.PositiveIntegerField()
    reason = models.TextField(blank=True)
    restored_epoch = models.PositiveIntegerField(null=True, blank=True)
    restored_step = models.PositiveBigIntegerField(null=True, blank=True)
    skip_steps = models.JSONField(default=list, blank=True, help_text="steps whose batches its ranks were told to skip")
    skip_read_by = models.JSONField(default=list, blank=True, help_text="ranks that asked which batches to skip")
    started_at = models.DateTimeField()
    running_at = models.DateTimeField(null=True, blank=True, help_text="when every rank had made its first step")
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="when a fault or a person ended its training")

    class Meta:
        ordering = ("job", "number")
        constraints = (models.UniqueConstraint(fields=("job", "number"), name="epoch_once_per_job"),)

    def __str__(self) -> str:
        return f"{self.job} epoch {self.number}"
