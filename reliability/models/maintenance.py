"""Planned times in which what happens to some nodes is no fault."""

from django.db import models

from reliability.models.nodes import Node


class MaintenanceWindow(models.Model):
    """Which nodes are worked on from when to when, and what is muted meanwhile. Never changed, only ended early."""

    class Scope(models.TextChoices):
        NODES = "nodes", "nodes by name"
        DOMAIN = "domain", "a failure domain"
        ALL = "all", "all nodes"

    scope = models.CharField(max_length=8, choices=Scope.choices)
    nodes = models.ManyToManyField(Node, blank=True, related_name="maintenance_windows")
    domain = models.CharField(max_length=80, blank=True, help_text="the failure domain, where the scope is one")
    starts_at = models.DateTimeField(db_index=True)
    ends_at = models.DateTimeField(db_index=True, help_text="brought forward when it is ended early")
    planned_until = models.DateTimeField(help_text="when it was to end as planned")
    reason = models.CharField(max_length=300)
    observe = models.BooleanField(default=True, help_text="Nothing that is found of the nodes is held against them.")
    stay = models.BooleanField(default=True, help_text="No recovery moves a job away from the nodes.")
    quiet = models.BooleanField(default=True, help_text="That the nodes cannot be reached is no incident.")
    planned_by = models.CharField(max_length=150)
    planned_at = models.DateTimeField()
    ended_by = models.CharField(max_length=150, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="when a person ended it early")

    class Meta:
        ordering = ("-starts_at", "-id")
        permissions = (("plan_maintenance", "Can plan maintenance of nodes"),)

    def __str__(self) -> str:
        return f"maintenance {self.pk}: {self.reason}"
