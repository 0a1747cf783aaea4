"""What people can enter: drills, holds, decisions, and the planner's inputs with their units."""

from collections.abc import Mapping
from typing import Any

from django import forms

from reliability.domain.planner import FirstOrderInputs
from reliability.errors import InvalidInput
from reliability.models import Drill, Job, Node

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
UNIT_CHOICES = [("s", "s"), ("min", "min"), ("h", "h"), ("d", "days")]
TIMES = ("save_stall", "drain", "recovery", "downtime", "mtbf")


class StyledForm(forms.Form):
    """Gives widgets the classes of the CSS kit."""

    template_name = "parts/form.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for bound in self:
            widget = bound.field.widget
            select = isinstance(widget, forms.Select) and not isinstance(widget, forms.RadioSelect)
            widget.attrs.setdefault("class", "form-select" if select else "form-control")


class DrillForm(StyledForm):
    """Which node of the job is broken, and how."""

    what = forms.ChoiceField(label="What happens", choices=Drill.What.choices, widget=forms.RadioSelect)
    node = forms.ModelChoiceField(label="To which node", queryset=Node.objects.none(), empty_label=None)

    def __init__(self, *args: Any, job: Job, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        nodes = Node.objects.filter(slots__job=job).distinct().order_by("name")
        node = self.fields["node"]
        assert isinstance(node, forms.ModelChoiceField)
        node.queryset = nodes
        self.initial.setdefault("what", Drill.What.KILL_NODE)
        self.initial.setdefault("node", nodes.last())
        self.fields["what"].widget.attrs["class"] = "form-check-input"

    @property
    def what_label(self) -> str:
        """The chosen fault in words."""
        return str(dict(Drill.What.choices)[self.cleaned_data["what"]])


class HoldForm(StyledForm):
    """Why a node must not be used."""

    reason = forms.CharField(
        label="Reason",
        max_length=500,
        help_text="Shown wherever the node is passed over.",
        widget=forms.TextInput(attrs={"placeholder": "for example: memory errors, part ordered"}),
    )


class DecisionForm(StyledForm):
    """A decision on a failover. The digest is of what was shown; a decision binds to it."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)
    note = forms.CharField(
        label="Note",
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"placeholder": "Why (kept with the decision)", "autocomplete": "off"}),
    )


def _time_field(label: str, help_text: str) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any", "min": "0", "class": "form-control"})
    return forms.FloatField(label=label, min_value=0, help_text=help_text, widget=widget)


class ShownPeriodForm(StyledForm):
    """The number of steps on the button that was pressed."""

    every_steps = forms.IntegerField(min_value=1, max_value=10_000_000, required=False)


class PlannerForm(StyledForm):
    """What the period is computed from. Times have a unit of their own; the domain gets seconds."""

    job = forms.ModelChoiceField(Job.objects.all(), to_field_name="name", required=False, empty_label="no job: what if")
    target = forms.FloatField(
        label="Availability target",
        min_value=0,
        max_value=100,
        help_text="Wanted effective training rate, per cent.",
        widget=forms.NumberInput(attrs={"step": "any", "class": "form-control"}),
    )
    save_stall = _time_field("Save stall", "How long one save blocks training, not the upload.")
    drain = _time_field("Drain to storage", "From the end of the stall until the copy is durable.")
    recovery = _time_field("Recovery", "Restore, start, and reach the first step.")
    downtime = _time_field("Downtime", "Detection, fence and check of the standby; add the time to decide.")
    mtbf = _time_field("Time between faults", "Mean time between faults that stop training.")
    mtbf_of = forms.ChoiceField(
        label="of",
        choices=[("job", "the whole job"), ("node", "one node")],
        required=False,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in TIMES:
            unit = forms.ChoiceField(label="Unit", choices=UNIT_CHOICES, required=False)
            unit.widget.attrs.update({"class": "form-select", "aria-label": f"Unit of {self.fields[name].label}"})
            self.fields[f"{name}_unit"] = unit

    def times(self) -> list[tuple[forms.BoundField, forms.BoundField]]:
        """Return every time with its unit, for the template."""
        return [(self[name], self[f"{name}_unit"]) for name in TIMES]

    def seconds(self, name: str) -> float:
        """Return a time in seconds."""
        unit = self.cleaned_data.get(f"{name}_unit") or "s"
        return float(self.cleaned_data[name]) * UNITS[unit]

    def inputs(self) -> FirstOrderInputs | None:
        """Return the planner's inputs, or None with the error at its field."""
        if not self.is_valid():
            return None
        job = self.cleaned_data["job"]
        per_node = self.cleaned_data["mtbf_of"] == "node"
        try:
            return FirstOrderInputs(
                save_stall_s=self.seconds("save_stall"),
                mtbf_s=self.seconds("mtbf") / (job.nodes if per_node and job else 1),
                recovery_s=self.seconds("recovery"),
                downtime_s=self.seconds("downtime"),
                drain_s=self.seconds("drain"),
                target=self.cleaned_data["target"] / 100,
            )
        except InvalidInput as error:
            self._blame(error)
            return None

    def _blame(self, error: InvalidInput) -> None:
        name = error.field.removesuffix("_s")
        self.add_error(name if name in self.fields else None, f"{error.message} {error.hint}")


def with_units(seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return form values for times in seconds, each in the largest unit that keeps it at 1 or more."""
    values: dict[str, Any] = {}
    for name, value in seconds.items():
        unit = max((unit for unit, size in UNITS.items() if value >= size), key=UNITS.__getitem__, default="s")
        values[name] = float(f"{value / UNITS[unit]:.4g}")
        values[f"{name}_unit"] = unit
    return values
