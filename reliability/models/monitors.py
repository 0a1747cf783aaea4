"""Foreign monitors: who may send what they see, and what of it is known already."""

from django.db import models

from reliability.models.nodes import Node


class MonitorToken(models.Model):
    """What a monitor shows to be let in. It may send findings and nothing else: of its node, or of any it names."""

    name = models.CharField(max_length=80)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.CASCADE, related_name="monitor_tokens")
    token_hash = models.CharField(max_length=64, unique=True)
    sent = models.PositiveBigIntegerField(default=0, help_text="findings that came with it; numbers its reports")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ("name", "-id")
        permissions = (("manage_monitor_tokens", "Can give and revoke tokens of monitors"),)
        constraints = (
            models.UniqueConstraint(
                fields=("name",), condition=models.Q(revoked_at=None), name="one_standing_token_of_a_name"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} for {self.node or 'any node'}"


class MonitorState(models.Model):
    """What a kind of monitor said last of a node: readings, events of late, conditions that stand.

    `kept` is written and understood by reliability/domain/monitors/remembering.py alone.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="monitor_states")
    source = models.CharField(max_length=40)
    kept = models.JSONField(default=dict, blank=True)
    standing = models.JSONField(default=list, blank=True, help_text="codes of conditions that stand")
    seen_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("node", "source"), name="one_state_of_a_monitor"),)

    def __str__(self) -> str:
        return f"{self.source} of {self.node}"
