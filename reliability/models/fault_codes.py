"""Changes to the fault-code table by people. Append-only: the last change of a code is the one in force."""

from django.db import models


class FaultCodeChange(models.Model):
    """One change of one code: who, when, why, and what the code is from then on.

    `values` is all that differs from the table as shipped (nothing after `reset`), or the whole row of an added code.
    """

    class Kind(models.TextChoices):
        ADD = "add", "added"
        CHANGE = "change", "changed"
        DISABLE = "disable", "switched off"
        ENABLE = "enable", "switched on"
        RESET = "reset", "as shipped again"

    code = models.CharField(max_length=64, db_index=True)
    version = models.PositiveIntegerField(help_text="1, 2, ... for each code")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    values = models.JSONField(default=dict, blank=True)
    reason = models.TextField()
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        permissions = (("edit_fault_codes", "Can change the fault-code table"),)
        constraints = (models.UniqueConstraint(fields=("code", "version"), name="fault_code_version_once"),)

    def __str__(self) -> str:
        return f"{self.code} version {self.version}: {self.get_kind_display()}"
