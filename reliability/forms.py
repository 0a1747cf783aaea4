"""What people can enter: drills and decisions. The planner's values: plan_forms; of nodes: node_forms."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from reliability.domain import fields as f
from reliability.errors import InvalidInput
from reliability.models import Drill, Job, Node


def shows(value: str) -> None:
    """Refuse letters that do not show: they turn the rest of a line round. Raises ValidationError."""
    try:
        f.check_shows(value, "")
    except InvalidInput as error:
        raise ValidationError(f"It{error.message.removeprefix(':')}. {error.hint}") from error


class StyledForm(forms.Form):
    """Gives widgets the classes of the CSS kit, and refuses what does not show but in fields that are `as_it_is`."""

    template_name = "parts/form.html"
    as_it_is: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for bound in self:
            widget = bound.field.widget
            select = isinstance(widget, forms.Select) and not isinstance(widget, forms.RadioSelect)
            widget.attrs.setdefault("class", "form-select" if select else "form-control")
            if isinstance(bound.field, forms.CharField) and bound.name not in self.as_it_is:
                bound.field.validators.append(shows)


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


class DecisionForm(StyledForm):
    """A decision on a failover. The digest is of what was shown; a decision binds to it."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)
    note = forms.CharField(
        label="Note",
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"placeholder": "Why (kept with the decision)", "autocomplete": "off"}),
    )


class IncidentNoteForm(StyledForm):
    """What a person says of an incident."""

    note = forms.CharField(
        label="Note",
        max_length=1000,
        widget=forms.TextInput(attrs={"placeholder": "Why (kept in the timeline)", "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, needed: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = needed
