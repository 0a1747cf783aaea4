"""What people enter to plan maintenance. Times are UTC, in the server's clock."""

import re
from datetime import UTC
from typing import Any

from django import forms

from reliability.forms import StyledForm
from reliability.models import MaintenanceWindow, Node
from reliability.services.maintenance import Plan

MUTED = (
    ("observe", "Nothing that is found of the nodes is held against them"),
    ("stay", "No recovery moves a job away from them"),
    ("quiet", "That they cannot be reached is no incident"),
)
TIME = {"type": "datetime-local", "step": "60"}


def _time(**more: Any) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs=TIME, format="%Y-%m-%dT%H:%M")
    return forms.DateTimeField(widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"], **more)


class MaintenanceForm(StyledForm):
    """Which nodes, from when to when, why, and what is muted."""

    scope = forms.ChoiceField(label="For", choices=MaintenanceWindow.Scope.choices, initial="nodes")
    nodes = forms.CharField(
        label="Nodes by name",
        required=False,
        max_length=100_000,
        help_text="Separated by commas or spaces.",
        widget=forms.TextInput(attrs={"placeholder": "n1, n2", "autocomplete": "off", "list": "known-nodes"}),
    )
    domain = forms.ChoiceField(label="Failure domain", required=False)
    starts_at = _time(label="Start (UTC)", required=False, help_text="Empty: now.")
    ends_at = _time(label="End (UTC)", help_text="At most 14 days after the start.")
    reason = forms.CharField(label="Reason", max_length=300)
    muted = forms.MultipleChoiceField(
        label="Meanwhile",
        choices=MUTED,
        initial=[name for name, _ in MUTED],
        widget=forms.CheckboxSelectMultiple,
        help_text="That a job stands still because a node is away is told all the same.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = set(Node.objects.exclude(failure_domain="").values_list("failure_domain", flat=True))
        field = self.fields["domain"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "none"), *((name, name) for name in sorted(known))]
        self.fields["muted"].widget.attrs["class"] = "choices"  # of the whole list and of each box in it

    def plan(self) -> Plan:
        """Return what was entered."""
        given = self.cleaned_data
        muted = {name: name in given["muted"] for name, _ in MUTED}
        names = [name for name in re.split(r"[\s,;]+", given["nodes"]) if name]
        return Plan(
            scope=given["scope"],
            nodes=names,
            domain=given["domain"],
            starts_at=given["starts_at"].astimezone(UTC) if given["starts_at"] else None,
            ends_at=given["ends_at"].astimezone(UTC),
            reason=given["reason"],
            **muted,
        )
