"""Who may do what: the three groups of users, made after every migration.

viewer reads; operator also runs jobs, applies periods, plans maintenance, closes incidents and says whether
decisions were right; approver also decides on failovers, changes the fault-code table, says what is automatic and
lets a node be used in spite of a quarantine.
"""

from typing import Any

from django.contrib.auth.models import Group, Permission

APP = "reliability"
VIEWER, OPERATOR, APPROVER = "viewer", "operator", "approver"
OPERATOR_CODENAMES = ("operate_job", "apply_plan", "plan_maintenance", "close_incident", "judge_decisions")
APPROVER_CODENAMES = (
    *OPERATOR_CODENAMES,
    "approve_failover",
    "edit_fault_codes",
    "manage_monitor_tokens",
    "override_quarantine",
    "set_action_modes",
    "set_limits",
)


def ensure_roles(**_signal: Any) -> None:
    """Create the groups and give them their permissions; what a person added to a group stays."""
    ours = Permission.objects.filter(content_type__app_label=APP)
    reading = list(ours.filter(codename__startswith="view_"))
    for name, codenames in ((VIEWER, ()), (OPERATOR, OPERATOR_CODENAMES), (APPROVER, APPROVER_CODENAMES)):
        group, _ = Group.objects.get_or_create(name=name)
        group.permissions.add(*reading, *ours.filter(codename__in=codenames))
