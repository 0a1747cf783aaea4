"""Decisions that judging came to, what became of them, and the rules that say how much is done by itself."""

from django.db import models

from reliability.domain.faults import Action, FaultClass
from reliability.domain.modes import WORDS, Reach
from reliability.domain.precision import Source, Verdict
from reliability.models.jobs import Job
from reliability.models.nodes import Node, choices
from reliability.models.recoveries import Incident

MODES = [(mode.value, words) for mode, words in WORDS.items()]


class ModeRule(models.Model):
    """One version of one rule. Append-only: the last version of a (reach, name, group) is the one in force.

    `mode` is empty when the rule was taken back. `evidence_since`: only decisions from then on unlock automatic action.
    """

    class Kind(models.TextChoices):
        SET = "set", "set"
        LOCK = "lock", "locked itself"
        UNLOCK = "unlock", "unlocked itself"
        RESET = "reset", "taken back"

    reach = models.CharField(max_length=8, choices=choices(Reach))
    name = models.CharField(max_length=64, blank=True, help_text="the code or the family; empty for all codes")
    group = models.CharField(max_length=80, blank=True, help_text="a failure domain; empty for all nodes")
    version = models.PositiveIntegerField(help_text="1, 2, ... for each code and group")
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.SET)
    mode = models.CharField(max_length=12, choices=MODES, blank=True)
    needed_precision = models.FloatField(null=True, blank=True, help_text="for automatic action; empty: nothing")
    least_decisions = models.PositiveIntegerField(null=True, blank=True)
    unlocks_itself = models.BooleanField(default=False)
    evidence_since = models.DateTimeField(null=True, blank=True)
    because = models.ForeignKey("Decision", null=True, blank=True, on_delete=models.SET_NULL, related_name="locks")
    reason = models.TextField()
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        permissions = (("set_action_modes", "Can say what is done by itself for a fault code"),)
        constraints = (
            models.UniqueConstraint(fields=("reach", "name", "group", "version"), name="mode_rule_version_once"),
        )

    def __str__(self) -> str:
        return f"{self.name or 'all codes'}{f' on {self.group}' if self.group else ''}: {self.mode or 'no rule'}"


class Decision(models.Model):
    """One decision, kept once for the same inputs. `verdict` is the one that stands, of those in `verdicts`.

    Only `verdict`, `verdict_source`, `by_hand`, `by_hand_at` and `looked_at` ever change.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="decisions")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="decisions")
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions")
    epoch = models.PositiveIntegerField(default=0)
    code = models.CharField(max_length=64, blank=True)
    family = models.CharField(max_length=64, blank=True)
    fault_class = models.CharField(max_length=16, choices=choices(FaultClass))
    action = models.CharField(max_length=20, choices=choices(Action))
    mode = models.CharField(max_length=12, choices=MODES)
    group = models.CharField(max_length=80, blank=True, help_text="the failure domain of the node then")
    rule = models.ForeignKey(ModeRule, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions")
    summary = models.TextField(blank=True)
    inputs = models.JSONField(default=dict, blank=True)
    digest = models.CharField(max_length=64)
    drill = models.BooleanField(default=False, help_text="the fault was made on purpose; it does not count")
    at = models.DateTimeField()
    by_hand = models.CharField(max_length=150, blank=True, help_text="who had it done although it was only observed")
    by_hand_at = models.DateTimeField(null=True, blank=True)
    verdict = models.CharField(max_length=8, choices=choices(Verdict), blank=True)
    verdict_source = models.CharField(max_length=8, choices=choices(Source), blank=True)
    looked_at = models.DateTimeField(help_text="when it was last asked what happened next")

    class Meta:
        ordering = ("-at", "-id")
        permissions = (("judge_decisions", "Can say whether a decision was right"),)
        constraints = (models.UniqueConstraint(fields=("incident", "digest"), name="decision_once"),)
        indexes = (
            models.Index(fields=("code", "group"), name="decision_code_group"),
            models.Index(fields=("looked_at",), name="decision_looked_at"),
        )

    def __str__(self) -> str:
        return f"decision {self.pk}: {self.code or 'consequences only'} -> {self.get_action_display()}"


class DecisionVerdict(models.Model):
    """What somebody, or what happened next, said of a decision. Append-only."""

    decision = models.ForeignKey(Decision, on_delete=models.CASCADE, related_name="verdicts")
    verdict = models.CharField(max_length=8, choices=choices(Verdict))
    source = models.CharField(max_length=8, choices=choices(Source))
    rule = models.CharField(max_length=32, blank=True, help_text="which rule of reliability/domain/aftermath.py")
    by = models.CharField(max_length=150)
    reason = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.decision_id}: {self.verdict} by {self.by}"
